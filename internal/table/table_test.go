package table

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"unicode/utf8"
)

func sample() *Table {
	t := &Table{Columns: []Column{{Name: "run"}, {Name: "steps"}, {Name: "success", Head: "validation success"},
		{Name: "note"}}}
	t.Add("demo", 40, Share(0.814, 1024), "finished")
	t.Add("a,b", 2, math.NaN(), nil)
	return t
}

func write(t *testing.T, how func(*bytes.Buffer) error) string {
	t.Helper()
	var out bytes.Buffer
	if err := how(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestOneTableManyForms(t *testing.T) {
	s := sample()
	terminal := "run   steps   validation success  note\n" +
		"demo     40  81.4 % [78.9, 83.7]  finished\n" +
		"a,b       2                    -  -\n"
	if got := write(t, func(w *bytes.Buffer) error { return s.Write(w) }); got != terminal {
		t.Errorf("terminal:\n%s\nexpected\n%s", got, terminal)
	}
	if got, want := write(t, func(w *bytes.Buffer) error { return s.WriteCSV(w) }),
		"run,steps,success,note\ndemo,40,0.814,finished\n\"a,b\",2,,\n"; got != want {
		t.Errorf("CSV:\n%s", got)
	}
	want := `{"run":"demo","steps":40,"success":0.814,"note":"finished"}` + "\n" +
		`{"run":"a,b","steps":2,"success":null,"note":null}` + "\n"
	if got := write(t, func(w *bytes.Buffer) error { return s.WriteJSON(w) }); got != want {
		t.Errorf("JSON:\n%s", got)
	}
	s.Add("<script>", 1, 0.5, "")
	if html := string(s.HTML()); !strings.Contains(html, "&lt;script&gt;") || strings.Contains(html, "<script>") ||
		!strings.Contains(html, "81.4 % [78.9, 83.7]") {
		t.Errorf("HTML:\n%s", html)
	}
	if text := s.Markdown(); !strings.Contains(text, "| a,b | 2 | - |") {
		t.Errorf("Markdown:\n%s", text)
	}
}

// No line is wider than the terminal: text is broken, and columns that do not fit follow below with the first one
// repeated.
func TestTablesFitTheTerminal(t *testing.T) {
	wide := New("tag", "description", "a", "b", "c", "d", "e", "f", "g", "h")
	wide.Add("sokoban", "push every box onto a target; boxes cannot be pulled, and a box in a corner is lost for good",
		1.25, 2.5, 3.75, 1e6, 1e-5, 7.0, 8.0, 9.0)
	wide.Add("a_tag_that_is_longer", "short", 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)
	for _, width := range []int{120, 80, 60, 40} {
		text := wide.Text(width)
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > width {
				t.Errorf("width %d: a line of %d characters: %q", width, n, line)
			}
		}
		for _, word := range []string{"corner", "1e-05", "h"} {
			if !strings.Contains(text, word) {
				t.Errorf("width %d: %q is missing:\n%s", width, word, text)
			}
		}
	}
	narrow := wide.Text(40)
	if strings.Count(narrow, "sokoban") < 2 {
		t.Errorf("the first column is not repeated:\n%s", narrow)
	}
}

// Where no terminal shows a table, a row is a line and no word is broken.
func TestAPipeGetsARowInALine(t *testing.T) {
	t.Setenv("COLUMNS", "")
	wide := New("condition", "verdict", "directory")
	path := "studies/lr/runs/" + strings.Repeat("long_name_of_a_condition,", 6) + "/seed_1"
	wide.Add("a", strings.Repeat("words ", 20), path)
	if got := write(t, func(w *bytes.Buffer) error { return wide.Write(w) }); strings.Count(got, "\n") != 2 ||
		!strings.Contains(got, path) {
		t.Errorf("in a pipe:\n%s", got)
	}
	t.Setenv("COLUMNS", "60")
	if got := write(t, func(w *bytes.Buffer) error { return wide.Write(w) }); strings.Contains(got, path) {
		t.Errorf("$COLUMNS is not kept to:\n%s", got)
	}
}

func TestIntervalsStayWithinTheirRange(t *testing.T) {
	for share, want := range map[float64]string{0: "0.0 % [0.0, 5.7]", 1: "100.0 % [94.3, 100.0]"} {
		if got := Share(share, 64).Text; got != want {
			t.Errorf("Share(%v, 64) = %q, expected %q", share, got, want)
		}
	}
	if c := Share(math.NaN(), 64); !unknown(c) {
		t.Errorf("NaN is known: %v", c)
	}
}
