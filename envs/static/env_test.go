package static

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"gyre/envs"
	"gyre/envs/envtest"
)

func play(t *testing.T, tag string, options map[string]any, seed int64) *game {
	t.Helper()
	return envtest.Play[*game](t, tag, options, seed)
}

// A right answer earns 1/2^k after k wrong ones; the expert's is right for every question of ours.
func TestAttempts(t *testing.T) {
	for _, tag := range []string{"MetamathQA", "GSM8K", "MMLU"} {
		asked := map[string]bool{}
		g := play(t, tag, nil, 0)
		for seed := range int64(120) {
			if _, err := g.Reset(t.Context(), seed, 0); err != nil {
				t.Fatal(err)
			}
			asked[g.Observe().Text] = true
			wrong := int(seed % 4)
			for range wrong {
				r, err := g.Step(t.Context(), "nothing of the kind")
				if err != nil || r.Reward != 0 || r.Done || r.Success || !r.Valid || r.Components[0].Value != 0 {
					t.Fatalf("%s: a wrong answer: %+v, %v", tag, r, err)
				}
			}
			if r, err := g.Step(t.Context(), " \n"); err != nil || r.Valid || r.Done || g.attempt != wrong {
				t.Fatalf("an empty answer: %+v, %v", r, err)
			}
			way, ok := g.Solve()
			r, err := g.Step(t.Context(), way[0])
			if !ok || err != nil || r.Reward != 1/float64(int(1)<<wrong) || !r.Done || !r.Success ||
				g.Observe().Text != "Correct!" || r.Components[0].Value != 1 {
				t.Fatalf("%s: %q to %q: %+v, %v", tag, way, g.question.text, r, err)
			}
			if _, err := g.Step(t.Context(), "1"); !errors.Is(err, envs.ErrNotRunning) {
				t.Fatal(err)
			}
		}
		if len(asked) != len(g.questions) {
			t.Errorf("%s: %d of %d questions are asked", tag, len(asked), len(g.questions))
		}
	}
	g := play(t, "MetamathQA", map[string]any{"attempts": 2}, 1)
	for i := range 2 {
		if r, _ := g.Step(t.Context(), "?"); r.Done != (i == 1) || r.Success {
			t.Errorf("answer %d of two: %+v", i, r)
		}
	}
}

func TestGrading(t *testing.T) {
	for _, c := range []struct {
		right        func(answer, gold string) bool
		answer, gold string
		want         bool
	}{
		{sameText, " X^2 +2x\n+1", "x^2 + 2x + 1", true},
		{sameText, "55.", "55", false},
		{sameNumber, "it is 6000 screws", "6,000", true},
		{sameNumber, "6,000.0", "6,000", true},
		{sameNumber, "-6 degrees", "-6", true},
		{sameNumber, "6", "-6", false},
		{sameNumber, "9-6", "-6", false},
		{sameNumber, "13.0", "13", true},
		{sameNumber, "131", "13", false},
		{sameNumber, "none", "13", false},
		{sameNumber, "3/4", "3/4", true},
		{sameNumber, "3", "3/4", false},
		{sameNumber, "3/4", "3", false},
		{sameNumber, "12", "12:30", false},
		{sameNumber, "12:30", "12:30", true},
		{sameNumber, "6*7 = 42\n#### 42 apples", "42", true},
		{sameNumber, "42 is wrong, so\n#### 43", "42", false},
		{sameNumber, "$1,234", "1234", true},
		{sameNumber, "-5", "−5", true},
		{sameNumber, "7\\sqrt{2}", "7\\sqrt{2}", true},
		{sameNumber, "7", "7\\sqrt{2}", false},
		{sameChoice, "b", "B", true},
		{sameChoice, "(B)", "B", true},
		{sameChoice, "The answer is B.", "A", false},
		{sameChoice, "The answer is B.", "B", true},
		{sameChoice, "A is wrong, so C", "C", true},
		{sameChoice, "BAD", "B", false},
		{sameChoice, "", "A", false},
	} {
		if got := c.right(c.answer, c.gold); got != c.want {
			t.Errorf("%q for %q: %v, want %v", c.answer, c.gold, got, c.want)
		}
	}
}

func TestFilesAndOptions(t *testing.T) {
	file := func(content string) string {
		path := filepath.Join(t.TempDir(), "rows.jsonl")
		if err := os.WriteFile(path, []byte(content+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	g := play(t, "MMLU", map[string]any{"problems": file(`{"question": "Q?", "choices": ["x", "y"], "answer": 1}`)}, 3)
	if g.Observe().Text != "Q?\nA. x\nB. y" || g.question.gold != "B" {
		t.Errorf("%+v", g.question)
	}
	for solution, want := range map[string]string{"6*7=42\n####$42": "42", "#### 3/4": "3/4", "#### 1,000.50 €": "1000.50"} {
		rows := file(`{"question": "Q?", "answer": ` + strconv.Quote(solution) + "}")
		if got := play(t, "GSM8K", map[string]any{"problems": rows}, 0).question.gold; got != want {
			t.Errorf("%q: the answer is %q, want %q", solution, got, want)
		}
	}
	for want, c := range map[string]struct {
		tag     string
		options map[string]any
	}{
		"one of metamathqa, gsm8k, mmlu": {"MMLU", map[string]any{"dataset_name": "math"}},
		"option attempts":                {"MMLU", map[string]any{"attempts": 0}},
		"no such file":                   {"MMLU", map[string]any{"problems": "missing.jsonl"}},
		"row 0 (line 1): expected two to four texts": {"MMLU",
			map[string]any{"problems": file(`{"question": "Q?", "choices": ["x", "y"], "answer": 2}`)}},
		"expected a text in column \"query\"": {"MetamathQA",
			map[string]any{"problems": file(`{"question": "Q?", "response": "The answer is: 1"}`)}},
		"expected an answer after \"####\"": {"GSM8K",
			map[string]any{"problems": file(`{"question": "Q?", "answer": "1"}`)}},
		"row 0 (line 1): expected an answer after \"####\"": {"GSM8K",
			map[string]any{"problems": file(`{"question": "Q?", "answer": "1\n#### "}`)}},
	} {
		spec, err := envs.Lookup(c.tag)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := spec.Make(c.options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s %v: error %v, want one with %q", c.tag, c.options, err, want)
		}
	}
}
