package dataset

import (
	"fmt"
	"strings"
	"testing"
)

// All that is wrong is told at once, each with its line, and blank lines count.
func TestAllFaultsAreTold(t *testing.T) {
	good := `{"question": "q", "answer": "1"}` + "\n"
	many := ""
	for i := range 9 {
		many += fmt.Sprintf(`{"question": %d, "answer": "1"}`+"\n", i)
	}
	for content, want := range map[string]string{
		good + "\n[1]\n\n" + good + "{\n": "2 rows are wrong: line 3: not a JSON object: got array, " +
			"expected an object; line 6: not a JSON object: unexpected EOF",
		"\n" + good + `{"question": "q", "answer": ["1", "2"]}` + "\n\n" + `{"question": "q", "answer": ["1", "2"]}` + "\n" +
			`{"question": [3], "answer": "1"}`: "3 rows are wrong: row 1 (line 3): answer: expected one answer, " +
			"got a list of 2: [\"1\",\"2\"]; row 2 (line 5): answer: expected one answer, got a list of 2: [\"1\",\"2\"]; row 3 (line 6): question: message 0",
		good + `{"question": 3, "answer": "1"}`: "x.jsonl: row 1 (line 2): question: expected a text",
		many:                                    "row 4 (line 5): question: expected a text or a list of messages, got 4; and 4 more",
	} {
		if _, err := Load(file(t, "x.jsonl", content), Fields{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", content, err, want)
		}
	}
}

// A column that some rows lack is as one that is null there; where all lack it, it is misnamed.
func TestColumnsThatSomeRowsLack(t *testing.T) {
	set, err := Load(file(t, "x.jsonl", `{"question": "a", "answer": "1"}
{"question": "b"}
{"answer": "3"}
{"id": "d"}`), Fields{})
	if err != nil || len(set.Rows) != 2 || fmt.Sprint(set.NoAnswer, set.NoQuestion) != "[1 3] [2 3]" {
		t.Fatalf("%+v, %v", set, err)
	}
	for content, want := range map[string]string{`{"question": "a"}`: "no column for the answer", `{"answer": "a"}`: "no column for the question"} {
		if _, err := Load(file(t, "x.jsonl", content+"\n"+content), Fields{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", content, err)
		}
	}
}

// A duplicate whose answer is another one is told apart, and so is an id that occurs twice.
func TestCheckTellsDuplicatesApart(t *testing.T) {
	set, err := Load(file(t, "x.jsonl", `{"id": "x", "question": "a", "answer": "3/4"}
{"id": "y", "question": "a", "answer": "0.75"}
{"id": "x", "question": "a", "answer": "3/4"}
{"id": "z", "question": "a", "answer": null}
{"id": "y", "question": "b", "answer": "1"}`), Fields{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Check(set, nil, Characters, func(Row, string) bool { return true })
	if got := fmt.Sprint(r.Duplicates, r.OtherAnswer, r.SameID); err != nil || got != "[1 2 3] [1] [2 4]" {
		t.Errorf("%s, %v", got, err)
	}
}
