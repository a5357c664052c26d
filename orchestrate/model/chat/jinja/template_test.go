package jinja

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"
	"time"
)

// Each expression comes to what it comes to in transformers' Jinja, or is an error as there
// (scripts/fixtures_tokenizer.py).
func TestExpressionsMatchJinja(t *testing.T) {
	f, err := os.Open("testdata/expressions.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	var seen struct{ Messages, Tools json.RawMessage }
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &seen) != nil {
		t.Fatal("no messages")
	}
	count := 0
	for ; lines.Scan(); count++ {
		var row struct {
			Template string
			Text     *string
			Error    string
		}
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		messages, err := FromJSON(seen.Messages)
		if err != nil {
			t.Fatal(err)
		}
		tools, err := FromJSON(seen.Tools)
		if err != nil {
			t.Fatal(err)
		}
		var got string
		compiled, err := Compile(row.Template)
		if err == nil {
			got, err = compiled.Render(map[string]Value{"messages": messages, "tools": tools}, time.Now())
		}
		if row.Text == nil && err == nil || row.Text != nil && (err != nil || got != *row.Text) {
			t.Errorf("%s: got %q, %v; want %s", row.Template, got, err, lines.Bytes())
		}
	}
	if count < 80 {
		t.Errorf("only %d expressions", count)
	}
}
