package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

func TestReferenceIsUpToDate(t *testing.T) {
	want, err := page("../config.go")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../../docs/configuration.md")
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("docs/configuration.md is not what config.go says (%v): run go generate ./orchestrate/config", err)
	}
}

func TestEveryKeyIsDescribed(t *testing.T) {
	content, err := page("../config.go")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, line := range strings.Split(string(content), "\n") {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		rows++
		cells := strings.Split(strings.ReplaceAll(line, `\|`, ""), " | ")
		if len(cells) != 5 || cells[1] == "" || strings.TrimSuffix(cells[4], " |") == "" {
			t.Errorf("incomplete row: %s", line)
		}
	}
	if rows < 80 {
		t.Errorf("%d keys described, expected all of them", rows)
	}
}
