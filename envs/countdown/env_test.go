package countdown

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gyre/envs"
	"gyre/envs/arithmetic"
	"gyre/envs/envtest"
	"gyre/internal/dataset"
)

func play(t *testing.T, options map[string]any, seed int64) *game {
	t.Helper()
	return envtest.Play[*game](t, "countdown", options, seed)
}

func TestRewards(t *testing.T) {
	path := filepath.Join(t.TempDir(), "one.jsonl")
	if err := os.WriteFile(path, []byte(`{"target": 24, "nums": [4, 6, 25]}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := play(t, map[string]any{"problems": path}, 1).Observe().Text,
		"Target: 24, nums: [4, 6, 25]"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	type row struct {
		Target int64   `parquet:"target"`
		Nums   []int64 `parquet:"nums,list"` // as RAGEN's file has it
	}
	table := filepath.Join(t.TempDir(), "problems.parquet")
	if err := dataset.Write(table, []row{{3, []int64{1, 2}}, {24, []int64{4, 6, 25}}}); err != nil {
		t.Fatal(err)
	}
	if got, want := play(t, map[string]any{"train_path": table}, 3).Observe().Text,
		"Target: 24, nums: [4, 6, 25]"; got != want {
		t.Errorf("row 1 of a Parquet file: %q, want %q", got, want)
	}
	for _, c := range []struct {
		answer  string
		reward  float64
		options map[string]any
	}{
		{"25 - 6 + 4", 0.1, nil},
		{"(25 - 4) + 6 - 3", 0, nil},
		{"4 * 6", 0, nil},
		{"4 × 6", 1, map[string]any{"use_all": false}},
		{"4 * 4 + 6", 0, map[string]any{"use_all": false}},
		{"", 0, map[string]any{"use_all": false}},
		{"4 * 6 + 25", 0.1, nil},
		{"2.5 + 4 + 6", 0, nil},
		{"25 - 4 + 6 = 27", 0, nil},
		{"25 / 4 6", 0.1, nil},
		{"4 ** 6 - 25", 0.1, nil},
		{"4 // (6 - 25)", 0.1, nil},
		{"6 * 4 * (25 - 4 - 6)", 0, nil},
		{"25 - 6 + 4", 0.3, map[string]any{"format_score": 0.3}},
	} {
		options := map[string]any{"problems": path}
		for k, v := range c.options {
			options[k] = v
		}
		g := play(t, options, 5)
		r, err := g.Step(t.Context(), c.answer)
		if err != nil || r.Reward != c.reward || !r.Done || r.Success != (c.reward == 1) ||
			r.Effective != (c.reward > 0) ||
			r.Components[0].Value != float64(int(c.reward)) || (r.Components[1].Value == 1) != (c.reward > 0) {
			t.Errorf("%q: %+v, %v, want reward %g", c.answer, r, err, c.reward)
		}
		if _, err := g.Step(t.Context(), "1"); !errors.Is(err, envs.ErrNotRunning) {
			t.Errorf("a second answer: %v", err)
		}
	}
}

// Generated problems keep to the options and have a solution that the environment accepts.
func TestProblemsAndExpert(t *testing.T) {
	sizes, signs := map[int]int{}, map[string]bool{}
	for seed := range int64(400) {
		options := map[string]any{}
		if seed%2 == 1 {
			options = map[string]any{"operations": "+-*/", "max_number": 20, "numbers": []any{2, 5}}
		}
		g := play(t, options, seed)
		sizes[len(g.problem.numbers)]++
		if g.problem.target < 10 || g.problem.target > 99 {
			t.Fatalf("seed %d: target %d", seed, g.problem.target)
		}
		if again := play(t, options, seed); again.Observe().Text != g.Observe().Text {
			t.Fatalf("seed %d gives two problems", seed)
		}
		way, ok := g.Solve()
		if !ok {
			t.Fatalf("seed %d: no solution of %+v", seed, g.problem)
		}
		for _, c := range way[0] {
			if strings.ContainsRune("+-*/(", c) {
				signs[string(c)] = true
			}
		}
		if r, err := g.Step(t.Context(), way[0]); err != nil || !r.Success {
			t.Fatalf("%+v: the expert's %s earns %+v, %v (%s)", g.problem, way[0], r, err, g.Observe().Text)
		}
	}
	if sizes[3] == 0 || sizes[4] == 0 || sizes[5] == 0 || len(signs) != 5 {
		t.Errorf("sizes %v and signs %v: too little variety", sizes, signs)
	}
	if _, ok := (problem{target: 1000, numbers: []int{1, 2, 3}}).solve(true); ok {
		t.Error("1000 is made of 1, 2 and 3")
	}
}

// The printed form of any tree of operations is read back with the tree's value.
func TestTermsPrintWhatTheyMean(t *testing.T) {
	for seed := range int64(3000) {
		rng := envs.Rand("terms", seed)
		terms := []*term{}
		for range 6 {
			terms = append(terms, &term{value: float64(1 + rng.IntN(9))})
		}
		for len(terms) > 1 {
			i := rng.IntN(len(terms) - 1)
			operator := "+-*/"[rng.IntN(4)]
			value, err := arithmetic.Apply(operator, terms[i].value, terms[i+1].value)
			if err != nil {
				operator, value = '+', terms[i].value+terms[i+1].value
			}
			terms[i] = &term{value, operator, terms[i], terms[i+1]}
			terms = append(terms[:i+1], terms[i+2:]...)
		}
		if got, err := (arithmetic.Grammar{}).Evaluate(terms[0].String()); err != nil ||
			math.Abs(got-terms[0].value) > 1e-9*max(1, math.Abs(got)) {
			t.Fatalf("%s is read as %g, %v; it was %g", terms[0], got, err, terms[0].value)
		}
	}
}

func TestFilesAndOptions(t *testing.T) {
	file := func(content string) string {
		path := filepath.Join(t.TempDir(), "problems.jsonl")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	gym := file(`{"question": "…", "answer": "15 - 4", "metadata": {"numbers": [15, 4], "target": 11}}` + "\n\n" +
		`{"target": 7, "nums": [3, 4]}`)
	for seed, want := range map[int64]string{0: "Target: 11, nums: [15, 4]", 1: "Target: 7, nums: [3, 4]",
		-1: "Target: 7, nums: [3, 4]"} {
		if got := play(t, map[string]any{"problems": gym}, seed).Observe().Text; got != want {
			t.Errorf("seed %d: %q, want %q", seed, got, want)
		}
	}
	spec, _ := envs.Lookup("Countdown")
	for want, options := range map[string]map[string]any{
		"option numbers":           {"numbers": []any{4, 3}},
		"option max_number":        {"max_number": 0},
		"option target":            {"target": []any{9, 3}},
		"some of + - * /":          {"operations": "+^"},
		"no such file":             {"problems": "missing.jsonl"},
		"row 1 (line 2): expected": {"problems": file("{\"target\": 3, \"nums\": [3]}\n{\"nums\": [3]}\n")},
		"at least 0, got [-3]":     {"problems": file("{\"target\": 3, \"nums\": [-3]}\n")},
		"it has no rows":           {"problems": file("")},
		"did you mean numbers?":    {"number": 3},
	} {
		if _, err := spec.Make(options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want one with %q", options, err, want)
		}
	}
	env, err := spec.Make(map[string]any{"target": []any{5000, 6000}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := env.Reset(t.Context(), 1, 0); err == nil || !strings.Contains(err.Error(), "widen option target") {
		t.Errorf("a target out of reach: error %v, want a hint", err)
	}
}
