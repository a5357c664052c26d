package deepcoder

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gyre/envs"
	"gyre/envs/envtest"
)

func play(t *testing.T, options map[string]any, seed int64) *game {
	t.Helper()
	return envtest.Play[*game](t, "deepcoder", options, seed)
}

// The built-in problems are solved by their solutions and by nothing that ignores the input.
func TestOwnProblems(t *testing.T) {
	g := play(t, nil, 0)
	for seed := range int64(len(g.problems)) {
		if _, err := g.Reset(t.Context(), seed, 0); err != nil {
			t.Fatal(err)
		}
		solution, ok := g.Solve()
		if !ok {
			t.Fatalf("problem %d has no solution", seed)
		}
		r, err := g.Step(t.Context(), "```python\n"+solution[0]+"```")
		if err != nil || r.Reward != 1 || !r.Success || !r.Done || r.Components[0].Value != 1 {
			t.Errorf("problem %d: %+v, %v: %s", seed, r, err, g.Observe().Text)
		}
		if _, err := g.Step(t.Context(), solution[0]); !errors.Is(err, envs.ErrNotRunning) {
			t.Errorf("a second answer: %v", err)
		}
		if _, err := g.Reset(t.Context(), seed, 0); err != nil {
			t.Fatal(err)
		}
		if r, err := g.Step(t.Context(), "print('nothing')"); err != nil || r.Success || r.Reward > 0.5 || !r.Done {
			t.Errorf("problem %d, a program that ignores its input: %+v, %v", seed, r, err)
		}
	}
}

// A program that passes some tests earns their share, and the policy learns how it failed, never what was expected.
func TestShares(t *testing.T) {
	g := play(t, map[string]any{"attempts": 5, "time_limit": 1}, 0) // the sum of two numbers, four tests
	for _, c := range []struct {
		program, told string
		reward        float64
		info          string
	}{
		{"a, b = map(int, input().split())\nprint(abs(a) + abs(b))", "a wrong result", 0.75, ""},
		{"a, b = map(int, input().split())\nassert a > 0\nprint(a + b)", "error", 0.5, ""},
		{"while True: pass", "timeout", 0, "program_timeout"},
		{"import os; os.fork()", "forbidden", 0, "program_forbidden"},
	} {
		r, err := g.Step(t.Context(), c.program)
		if err != nil || r.Reward != c.reward || r.Done || r.Success ||
			!strings.HasSuffix(g.Observe().Text, c.told+".") {
			t.Errorf("%s: %+v, %v, %q", c.program, r, err, g.Observe().Text)
		}
		if c.info != "" && r.Info[c.info] != 1 {
			t.Errorf("%s: %v, want %s", c.program, r.Info, c.info)
		}
	}
	if r, err := g.Step(t.Context(), " \n"); err != nil || r.Valid || r.Done {
		t.Errorf("no program: %+v, %v", r, err)
	}
	if r, _ := g.Step(t.Context(), "x"); !r.Done {
		t.Error("the fifth of five answers does not end the episode")
	}
}

func TestReadReply(t *testing.T) {
	code := "a = 1\nprint(a or '||')"
	for _, reply := range []string{
		"thoughts</think><answer>\n" + code + "\n</answer>",
		"<answer>wrong</answer></think>\n<answer>" + code + "</answer>", code + "</answer>",
		"</think>Here:\n```python\nfirst\n```\nor rather\n```py\n" + code + "\n```\nDone.",
	} {
		if got := readReply(reply, 1); len(got) != 1 || strings.TrimSpace(got[0]) != code {
			t.Errorf("%q is read as %q", reply, got)
		}
	}
	for _, reply := range []string{"", "print(1)", "</think>", "```python\nprint(1)"} {
		if got := readReply(reply, 1); got != nil {
			t.Errorf("%q is read as %q", reply, got)
		}
	}
}

// The forms in which the data set writes its tests.
func TestFiles(t *testing.T) {
	rows := []string{
		`{"problem": "square", "tests": "{\"inputs\": [\"2\\n\", \"3\\n\"], \"outputs\": [\"4\\n\", \"9\\n\"]}", "solutions": "[\"print(int(input()) ** 2)\"]"}`,
		`{"problem": "square", "tests": {"fn_name": "f", "inputs": [[2], [3]], "outputs": [[4], [9]]}, "solutions": ["def f(n): return n * n"]}`,
		`{"problem": "square", "tests": "[{\"input\": \"2\", \"output\": \"4\", \"testtype\": \"functional\"}]", "metadata": "{\"func_name\": \"f\"}", "solutions": ["class Solution:\n  def f(self, n): return n * n"]}`,
		`{"problem": "square", "tests": [{"input": ["2", "3"], "output": "4\n9", "type": "stdin_stdout"}], "solutions": ["import sys\nfor n in sys.stdin: print(int(n) ** 2)"]}`,
		`{"problem": "square", "tests": [{"input": [[1, 2.5]], "output": [1, 6.25], "fn_name": "f"}], "solutions": ["def f(x): return tuple(n * n for n in x)"]}`,
	}
	path := filepath.Join(t.TempDir(), "problems.jsonl")
	if err := os.WriteFile(path, []byte(strings.Join(rows, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := play(t, map[string]any{"problems": path}, 0)
	for seed := range rows {
		if _, err := g.Reset(t.Context(), int64(seed), 0); err != nil {
			t.Fatal(err)
		}
		solution, ok := g.Solve()
		if !ok {
			t.Fatalf("row %d has no solution", seed)
		}
		if r, err := g.Step(t.Context(), solution[0]); err != nil || !r.Success {
			t.Errorf("row %d: %+v, %v: %s", seed, r, err, g.Observe().Text)
		}
	}
	spec, _ := envs.Lookup("DeepCoder")
	for want, content := range map[string]string{
		"row 0 (line 1): expected a text in column":        `{"tests": []}`,
		"row 0 (line 1): expected tests in column":         `{"problem": "x", "tests": []}`,
		"as many \"inputs\" as \"outputs\"":                `{"problem": "x", "tests": {"inputs": ["1"], "outputs": []}}`,
		"test 1: expected texts for standard input":        `{"problem": "x", "tests": [{"input": 1, "output": "1"}]}`,
		"test 1: expected a list of arguments for f":       `{"problem": "x", "tests": [{"input": 1, "output": "1", "fn_name": "f"}]}`,
		"test 1: argument \"two\" of f":                    `{"problem": "x", "tests": [{"input": "two", "output": "1", "fn_name": "f"}]}`,
		"option attempts: expected an integer >= 1, got 0": "",
	} {
		options := map[string]any{"attempts": 0}
		if content != "" {
			path := filepath.Join(t.TempDir(), "problems.jsonl")
			if err := os.WriteFile(path, []byte(content+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			options = map[string]any{"problems": path}
		}
		if _, err := spec.Make(options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", content, err, want)
		}
	}
}

func TestSameText(t *testing.T) {
	if trimmed("a \r\nb\n\n") != "a\nb" || trimmed("a b") == trimmed("a  b") {
		t.Error("texts are compared wrongly")
	}
	values := []any{1.0, 1.5, "1", true, nil, []any{1.0}, []any{}, map[string]any{"a": 1.0}}
	for i, a := range values {
		if n := len(slices.DeleteFunc(slices.Clone(values), func(b any) bool { return !sameValue(a, b) })); n != 1 ||
			!sameValue(a, values[i]) {
			t.Errorf("%v equals %d of %v", a, n, values)
		}
	}
	if !sameValue(0.1+0.2, 0.3) || sameValue(2.0, 2.0000001) || !sameValue(3.0, 3.0) {
		t.Error("numbers are compared wrongly")
	}
}
