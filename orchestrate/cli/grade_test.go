package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"gyre/internal/exitcode"
)

// with runs one of the real commands on an input.
func with(t *testing.T, input string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	app := newApp([]*cli.Command{gradeCommand(), dataCommand()}, &out, &errs)
	app.Reader = strings.NewReader(input)
	code = run(context.Background(), app, append([]string{"gyre"}, args...))
	return code, out.String(), errs.String()
}

func TestGradeRows(t *testing.T) {
	code, stdout, stderr := with(t, `{"pred": "\\dfrac12", "gold": "1/2", "id": 7}

{"response": "so \\boxed{ 5 }", "gold": 5}
{"response": "6*7\n#### 42 apples", "gold": 42.0}
{"response": "no idea", "gold": "5"}
{"pred": "0.25", "gold": "1/4"}
{"function": "compute_length_score", "solution_str": "aaaa", "max_length": 8}
{"function": "last_boxed_only_string", "text": "none"}
{"function": "extract_solution", "text": "\\boxed{\\frac}"}
`, "grade")
	want := []string{
		`{"id":7,"correct":true,"extracted":"\\dfrac12","normalized":"\\frac{1}{2}","gold":"\\frac{1}{2}","rules":["pred:frac_variants","pred:frac_braces","gold:slash","same_text"]}`,
		`{"correct":true,"extracted":" 5 ","normalized":"5","gold":"5","rules":["pred:spaces","same_text"]}`,
		`{"correct":true,"extracted":"42","normalized":"42","gold":"42","rules":["same_text"]}`,
		`{"correct":false,"extracted":null,"normalized":null,"gold":null,"rules":["no_box"]}`,
		`{"correct":false,"extracted":"0.25","normalized":"0.25","gold":"\\frac{1}{4}","rules":["gold:slash"]}`,
		`{"value":0.5}`, `{"value":null}`, `{"value":null,"error":"IndexError: string index out of range"}`,
	}
	if got := strings.TrimSpace(stdout); code != 0 || got != strings.Join(want, "\n") {
		t.Errorf("exit %d, %s\n%s", code, stderr, got)
	}
	if code, stdout, _ := with(t, `{"pred": "0.25", "gold": "1/4"}`, "grade", "--mode", "lenient"); code != 0 ||
		!strings.Contains(stdout, `"correct":true`) ||
		!strings.Contains(stdout, `"same_number"`) {
		t.Errorf("lenient: exit %d, %s", code, stdout)
	}
}

func TestGradeRefuses(t *testing.T) {
	for input, want := range map[string]string{
		`{"pred": "1"}`: "line 1: expected gold",
		`{"gold": "1"}`: "expected gold and either pred or response",
		`{"pred": "1", "response": "2", "gold": "1"}`:      "either pred or response",
		`{"pred": [1], "gold": "1"}`:                       "pred: expected a string, got [1]",
		"[1]":                                              "line 1: not a JSON object",
		`{"function": "compute_lenght_score"}`:             "did you mean compute_length_score?",
		`{"function": "compute_length_score"}`:             "expected solution_str",
		`{"function": "strip_string", "solution_str": []}`: "arguments of strip_string",
	} {
		code, _, stderr := with(t, input, "grade")
		if code != exitcode.Usage || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d, %q; want exit 2 and %q", input, code, stderr, want)
		}
	}
	if code, _, stderr := with(t, "", "grade", "--mode", "lenint"); code != exitcode.Usage ||
		!strings.Contains(stderr, "did you mean lenient?") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

// From an original file to training files, checked, shown, split and audited.
func TestDataCommands(t *testing.T) {
	dir := t.TempDir()
	original := filepath.Join(dir, "original.jsonl")
	var rows strings.Builder
	for i := range 500 {
		line, err := json.Marshal(map[string]any{"problem": "Problem " + strings.Repeat("i", i) + "?",
			"answer": `90^\circ`, "level": 3})
		if err != nil {
			t.Fatal(err)
		}
		rows.Write(append(line, '\n'))
	}
	extra := `{"problem": "PROBLEM ii", "answer": "1"}` + "\n" + `{"problem": "Another", "answer": "2"}` + "\n"
	for name, content := range map[string]string{"original.jsonl": rows.String(), "more.jsonl": extra} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"data", "prepare", "math500", "--input", original, "--output", dir + "/m"}, 0,
			"470 rows for training, 30 held out"},
		{[]string{"data", "prepare", "math500", "--input", original, "--output", dir + "/l", "--split", "leak-free",
			"--train", dir + "/more.jsonl"}, 0,
			"1 rows for training, 500 held out"},
		{[]string{"data", "check", dir + "/m/train.parquet", "--against", dir + "/m/test.jsonl"}, 0,
			"answers rewritten 470"},
		{[]string{"data", "check", dir + "/m/train.parquet", "--against", original}, exitcode.Failed, "problems also occur"},
		{[]string{"data", "check", dir + "/m/train.parquet", "--max-prompt", "100"}, exitcode.Failed, "longest prompt has"},
		{[]string{"data", "show", dir + "/m/test.parquet", "--rows", "1"}, 0, "answer: 90^\\circ"},
		{[]string{"data", "show", dir + "/m/test.parquet", "--from", "30"}, exitcode.Usage, "rows 0 to 29"},
		{[]string{"data", "split", dir + "/m/train.parquet", dir + "/s", "--validation", "7"}, 0,
			"463 rows for training, 7 for validation"},
		{[]string{"data", "prepare", "math5000"}, exitcode.Usage, "did you mean math500?"},
		{[]string{"data", "prepare", "math500", "--input", dir + "/more.jsonl"}, exitcode.Usage,
			"the split 470/30 is one of MATH-500's 500"},
		{[]string{"data", "prepare", "gsm8k", "--input", dir}, exitcode.Usage, "has no"},
		{[]string{"grade", "--audit", original}, 0,
			`{"rows":500,"scored":500,"rewritten_by_rules":500,"scored_by_compute_correctness_score":0}`},
	} {
		code, stdout, stderr := with(t, "", c.args...)
		if code != c.code || !strings.Contains(stdout+stderr, c.want) {
			t.Errorf("gyre %s: exit %d, want %d with %q\n%.300s\n%.300s", strings.Join(c.args, " "), code, c.code,
				c.want, stdout, stderr)
		}
	}
}
