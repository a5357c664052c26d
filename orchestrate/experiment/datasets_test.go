package experiment

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gyre/orchestrate/config"
)

// asking writes a data set whose rows ask the questions from first on, in the form of the grader.
func asking(t *testing.T, first, n int, more ...string) string {
	t.Helper()
	rows := more
	for i := range n {
		rows = append(rows, fmt.Sprintf(`{"question": "q%d, behind ####", "answer": "%d"}`, first+i, i))
	}
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	if err := os.WriteFile(path, []byte(strings.Join(rows, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// checked reads a configuration that trains on one data set and validates on another, which has lines of its own.
func checked(t *testing.T, training, held, more string, overrides ...string) *config.Config {
	t.Helper()
	text := fmt.Sprintf("[model]\npath = \"m\"\n[[envs]]\ntag = \"Dataset\"\noptions = { file = %q }\n", training)
	if held != "" {
		text += fmt.Sprintf("[[validation.envs]]\ntag = \"Dataset\"\n%s\n[validation.envs.options]\nfile = %q\n", more,
			held)
	}
	c, err := config.Parse("x.toml", []byte(text), overrides, CheckEnvironments(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A validation file is played row by row, whatever the order of its rows and the seeds.
func TestValidationRowByRow(t *testing.T) {
	held, training := asking(t, 0, 10), asking(t, 100, 3)
	for _, c := range []struct {
		more      string
		overrides []string
		groups    int
		rows      int
		noted     string
	}{
		{"groups = 10", nil, 10, 10, ""},
		{"", nil, 10, 10, ""},
		{"groups = 10", []string{"validation.envs.0.options.first_seed=7"}, 10, 10, ""},
		{"groups = 10", []string{"validation.seed=-4"}, 10, 10, ""},
		{"groups = 10", []string{"validation.envs.0.options.shuffle=false"}, 10, 10, ""},
		{"", []string{"validation.envs.0.options.rows=4"}, 4, 4, ""},
		{"groups = 4", nil, 4, 4, "4 groups play 4 of the 10 rows of FILE; repeated: 0, missed: 6, also in training: 0"},
		{"groups = 13", nil, 13, 10, "13 groups play 10 of the 10 rows of FILE; repeated: 3, missed: 0, also in training: 0"},
	} {
		cfg := checked(t, training, held, c.more, c.overrides...)
		e := cfg.Validation.Envs[0]
		rows, err := played(t.Context(), e, cfg.Validation.Seed)
		if err != nil || e.Groups != c.groups || len(rows) != c.rows {
			t.Errorf("%+v: %d groups, rows %v, %v", c, e.Groups, rows, err)
		}
		notes := strings.ReplaceAll(strings.Join(notesOf(cfg), "|"), held, "FILE")
		if want := c.noted; want != "" && notes != "validation.envs.0: "+want || want == "" && notes != "" {
			t.Errorf("%+v: %q", c, notes)
		}
	}
	e := checked(t, training, asking(t, 0, 600), "").Validation.Envs[0]
	if e.Groups != 512 {
		t.Errorf("%d groups of a file of 600 rows, want 512", e.Groups)
	}
}

// Each of several validation files begins with its first row.
func TestSeveralValidationFiles(t *testing.T) {
	held := asking(t, 0, 10)
	text := "[model]\npath = \"m\"\n[[envs]]\ntag = \"Bandit\"\n"
	for range 2 {
		text += fmt.Sprintf("[[validation.envs]]\ntag = \"Dataset\"\noptions = { file = %q }\n", held)
	}
	c, err := config.Parse("x.toml", []byte(text), nil, CheckEnvironments(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{123, 133} {
		if e := c.Validation.Envs[i]; e.Groups != 10 || e.Options["first_seed"] != want {
			t.Errorf("source %d: %+v", i, e)
		}
	}
}

// Where answers are graded that no problem asks for in a form, no reply of a chat model is right.
func TestNoFormIsNoted(t *testing.T) {
	const plain = `{"question": "Six times seven?", "answer": "42"}`
	for _, c := range []struct {
		row, more string
		noted     bool
	}{
		{plain, "", true},
		{plain, "[[rewards]]\nname = 'right'\noptions = { component = 'correctness' }", true},
		{plain, "[[rewards]]\nname = 'correctness'\noptions = { answer = 'whole' }", false},
		{plain, "[[rewards]]\nname = 'length'", false},
		{plain, "[envs.options]\ninstruction = 'boxed'", false},
		{`{"question": "Six times seven? End with #### and the number.", "answer": "42"}`, "", false},
	} {
		text := fmt.Sprintf("[model]\npath = \"m\"\n[[envs]]\ntag = \"Dataset\"\noptions.file = %q\n%s\n",
			asking(t, 0, 0, c.row), strings.Replace(c.more, "[envs.options]\n", "options.", 1))
		of, err := config.Parse("x.toml", []byte(text), nil, CheckEnvironments(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(strings.Join(of.Warnings(), "\n"), "no problem says where"); got != c.noted {
			t.Errorf("%s with %q: noted %v", c.row, c.more, got)
		}
	}
}

// notesOf are the warnings that are about data.
func notesOf(c *config.Config) (notes []string) {
	for _, w := range c.Warnings() {
		if strings.Contains(w, "rows") {
			notes = append(notes, w)
		}
	}
	return notes
}

// What lacks something, and what is validated on although it is trained on, is said once.
func TestDataIsNoted(t *testing.T) {
	training := asking(t, 5, 5, `{"question": null, "answer": "1"}`, `{"question": "x", "answer": "####"}`)
	notes := notesOf(checked(t, training, asking(t, 0, 10), ""))
	want := []string{"10 groups play 10 of the 10 rows of ", "1 of 7 rows have no question",
		"1 of 7 rows have no answer, or nothing behind"}
	if len(notes) != len(want) || !strings.HasSuffix(notes[0], "; repeated: 0, missed: 0, also in training: 5") {
		t.Fatalf("%q", notes)
	}
	for i := range want {
		if !strings.Contains(notes[i], want[i]) {
			t.Errorf("%q, want %q", notes[i], want[i])
		}
	}
	own := checked(t, training, "", "", "run.validate_every=1") // the training file itself
	if notes = notesOf(own); len(notes) != 3 || !strings.HasSuffix(notes[0], "also in training: 6") ||
		own.Validation.Envs[0].Groups != 6 || own.Envs[0].Options["first_seed"] != nil {
		t.Errorf("%q, %+v, %+v", notes, own.Validation.Envs, own.Envs)
	}
	quiet := checked(t, asking(t, 0, 3), "", "", "run.validate_every=0", "run.validate_first=false")
	if notes = notesOf(quiet); notes != nil {
		t.Errorf("a run that validates nothing: %q", notes)
	}
	held := notesOf(checked(t, training, "", "", "validation.holdout=0.5", "run.validate_every=1"))
	if len(held) != 3 || !strings.Contains(held[0], "rows are drawn by what they ask") {
		t.Errorf("held out by state: %q", held)
	}
}
