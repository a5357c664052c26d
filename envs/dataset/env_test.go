package dataset

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gyre/envs"
	"gyre/envs/envtest"
)

// jsonl writes rows to a file.
func jsonl(t *testing.T, rows ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	if err := os.WriteFile(path, []byte(strings.Join(rows, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func reset(t *testing.T, env envs.Env, seed int64) string {
	t.Helper()
	begin(t, env, seed)
	return env.Observe().String()
}

func begin(t *testing.T, env envs.Env, seed int64) envs.Start {
	t.Helper()
	start, err := env.Reset(t.Context(), seed, 0)
	if err != nil {
		t.Fatal(err)
	}
	return start
}

func step(t *testing.T, env envs.Env, reply string) envs.Result {
	t.Helper()
	r, err := env.Step(t.Context(), reply)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// One epoch shows every row once, the next in another order, and the order follows from the seeds alone.
func TestEpochs(t *testing.T) {
	var rows []string
	for i := range 20 {
		rows = append(rows, fmt.Sprintf(`{"question": "q%d", "answer": "%d"}`, i, i))
	}
	file := jsonl(t, rows...)
	a, b := envtest.Open(t, "dataset", map[string]any{"file": file}),
		envtest.Open(t, "dataset", map[string]any{"file": file})
	var epochs [3][]string
	for k := range 60 {
		epochs[k/20] = append(epochs[k/20], reset(t, a, int64(10000+k)))
	}
	for e, shown := range epochs {
		sorted := slices.Clone(shown)
		slices.Sort(sorted)
		if len(slices.Compact(sorted)) != 20 {
			t.Errorf("epoch %d shows %v", e, shown)
		}
	}
	if slices.Equal(epochs[0], epochs[1]) {
		t.Error("two epochs have the same order")
	}
	if got := reset(t, b, 10037); got != epochs[1][17] {
		t.Errorf("another instance shows %q, want %q", got, epochs[1][17])
	}
	ordered := envtest.Open(t, "dataset", map[string]any{"file": file, "shuffle": false, "first_seed": 123, "rows": 5})
	for k, want := range []string{"q0", "q1", "q2", "q3", "q4", "q0"} {
		if got := reset(t, ordered, int64(123+k)); got != want {
			t.Errorf("seed %d shows %q, want %q", 123+k, got, want)
		}
	}
	if got := reset(t, ordered, 122); got != "q4" {
		t.Errorf("the seed before the first shows %q", got)
	}
	// A row has one name, known before it is played, in all epochs.
	names := map[string]string{}
	for k := range int64(60) {
		name := a.(envs.Recurrent).Task(10000 + k)
		shown := reset(t, a, 10000+k)
		if names[name] == "" {
			names[name] = shown
		}
		if names[name] != shown || name == "" {
			t.Errorf("task %q shows %q and %q", name, names[name], shown)
		}
	}
	if len(names) != 20 {
		t.Errorf("%d tasks, want 20", len(names))
	}
}

func TestParts(t *testing.T) {
	env := envtest.Open(t, "dataset", map[string]any{"file": jsonl(t, `{"question": "1+1?", "answer": "2", "id": "x"}`),
		"instruction": "boxed"})
	if got := reset(t, env, 0); got != `1+1? Let's think step by step and output the final answer in \boxed{your answer here}.` {
		t.Errorf("prompt %q", got)
	}
	reply, target := `First, it is \boxed{2}.`, 800.0
	score := 1 - math.Abs(23/target-1)
	r := step(t, env, reply)
	if !r.Done || !r.Success || r.Unjudged || r.Reward != 1 || len(r.Components) != 3 {
		t.Fatalf("%+v", r)
	}
	for i, want := range []envs.Component{{Name: "correctness", Value: 1}, {Name: "format", Value: 0.65},
		{Name: "length", Value: score}} {
		p := r.Components[i]
		if p.Name != want.Name || p.Value != want.Value || p.Name != "length" && reply[p.From:p.To] != `\boxed{2}` {
			t.Errorf("part %+v, want %+v", p, want)
		}
	}
	if _, err := env.Step(t.Context(), reply); !errors.Is(err, envs.ErrNotRunning) {
		t.Errorf("after the end: %v", err)
	}
	if start := begin(t, env, 1); start.Name != "rows/x" || start.Answer != "2" {
		t.Errorf("the episode is %q, its answer %q", start.Name, start.Answer)
	}
	if r := step(t, env, `\boxed{3}`); !r.Done || r.Success || r.Reward != 0 {
		t.Errorf("a wrong answer: %+v", r)
	}
}

// The experiment chooses components; what it asks for wrongly is refused.
func TestComponents(t *testing.T) {
	spec, err := envs.Lookup("Arithmetic")
	if err != nil {
		t.Fatal(err)
	}
	short := envs.ComponentSpec{Name: "short",
		Options: map[string]any{"component": "length", "target": 4, "unit": "tokens"}}
	env, err := spec.Make(nil, short, envs.ComponentSpec{Name: "truncation"})
	if err != nil {
		t.Fatal(err)
	}
	defer env.Close()
	begin(t, env, 5).OnReply(envs.Reply{Tokens: 5, Truncated: true})
	r := step(t, env, "no idea")
	if len(r.Components) != 2 || r.Components[0] != (envs.Component{Name: "short", Value: 0.75}) ||
		r.Components[1].Value != 1 || r.Success || !r.Unjudged {
		t.Errorf("%+v", r)
	}
	if _, err := spec.Make(nil, envs.ComponentSpec{Name: "lenght"}); err == nil ||
		!strings.Contains(err.Error(), "did you mean length?") {
		t.Errorf("misspelt: %v", err)
	}
}

func TestAttempts(t *testing.T) {
	env := envtest.Open(t, "dataset", map[string]any{"file": jsonl(t, `{"question": "1+1?", "answer": "2"}`),
		"attempts": 3, "feedback": "No."})
	reset(t, env, 0)
	if r := step(t, env, "3"); r.Done || r.Components != nil || r.Reward != 0 || env.Observe().String() != "No." {
		t.Errorf("first attempt: %+v, %q", r, env.Observe())
	}
	if r := step(t, env, "2"); !r.Done || !r.Success || r.Reward != 1 || r.Info["attempts"] != 2 {
		t.Errorf("second attempt: %+v", r)
	}
	reset(t, env, 0)
	for range 2 {
		step(t, env, "3")
	}
	if r := step(t, env, "3"); !r.Done || r.Success || len(r.Components) != 3 {
		t.Errorf("last attempt: %+v", r)
	}
}

// Several problems make one prompt and one answer; a careless expert forgets leading digits, as often as it is told to.
func TestManyProblemsAndACarelessExpert(t *testing.T) {
	one, four := envtest.Open(t, "Arithmetic", nil),
		envtest.Open(t, "Arithmetic", map[string]any{"problems": 4, "suffix": "=", "careless": 0.5})
	long, short := 0, 0
	for seed := range int64(200) {
		reset(t, one, seed)
		reset(t, four, seed)
		if asked := four.Observe().Text; !strings.HasPrefix(asked, one.Observe().Text+" ") ||
			strings.Count(asked, "+") != 4 {
			t.Fatalf("%q and %q", one.Observe().Text, asked)
		}
		gold := begin(t, four, seed).Answer
		way, ok := four.(envs.Solver).Solve()
		again, _ := four.(envs.Solver).Solve()
		if !ok || way[0] != again[0] {
			t.Fatalf("%q, then %q", way, again)
		}
		given := strings.Split(way[0], ",")
		for i, answer := range strings.Split(gold, ",") {
			switch {
			case len(answer) == 2 && given[i] == answer[1:]:
				short++
			case len(answer) == 2 && given[i] == answer:
				long++
			case given[i] != answer:
				t.Fatalf("%q for %q", way, gold)
			}
		}
		if r := step(t, four, gold); !r.Success {
			t.Fatalf("%q is not right: %+v", gold, r)
		}
	}
	if long < 120 || short < 120 {
		t.Errorf("%d answers of two digits are whole, %d are not", long, short)
	}
}

// The problem's value is what the text says, products first.
func TestArithmeticIsRight(t *testing.T) {
	env := envtest.Open(t, "arithmetic", map[string]any{"terms": 4, "operators": "+-*", "digits": 2, "prefix": "Q: ",
		"suffix": " ="})
	seen := map[string]bool{}
	for seed := range int64(200) {
		shown := reset(t, env, seed)
		seen[shown] = true
		solution, ok := env.(envs.Solver).Solve()
		text := strings.TrimSuffix(strings.TrimPrefix(shown, "Q: "), " =")
		total := 0
		for _, term := range strings.Split(strings.ReplaceAll(text, "-", "+-"), "+") {
			product := 1
			for _, f := range strings.Split(term, "*") {
				n, sign := strings.TrimPrefix(f, "-"), 1
				if n != f {
					sign = -1
				}
				var x int
				if _, err := fmt.Sscan(n, &x); err != nil {
					t.Fatal(err)
				}
				product *= sign * x
			}
			total += product
		}
		if !ok || solution[0] != fmt.Sprint(total) || !step(t, env, solution[0]).Success {
			t.Errorf("%s: the environment says %v, it is %d", text, solution, total)
		}
	}
	if len(seen) < 190 {
		t.Errorf("%d different problems for 200 seeds", len(seen))
	}
}

func TestWrongOptions(t *testing.T) {
	file := jsonl(t, `{"question": "a long question", "answer": "2"}`)
	for want, c := range map[string]map[string]any{
		"absent.jsonl: file does not exist": {"file": "absent.jsonl"},
		"gyre data prepare --help":          {"file": "absent.parquet"},
		"option attempts: expected":         {"attempts": 0},
		"no prompt is within":               {"file": file, "max_prompt_length": 5},
		"did you mean shuffle?":             {"shufle": true},
		"(did you mean boxed?)":             {"file": file, "instruction": "boxd"},
		"(did you mean hash?)":              {"file": file, "instruction": "Hash"},
		`no column "q"`:                     {"file": file, "question": "q"},
		"it measures prompts for":           {"file": file, "tokenizer": "dir"},
	} {
		spec, _ := envs.Lookup("dataset")
		if env, err := spec.Make(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, error %v, want one with %q", c, env, err, want)
		}
	}
	spec, _ := envs.Lookup("arithmetic")
	if _, err := spec.Make(map[string]any{"terms": 0, "digits": 9, "operators": "/"}); err == nil ||
		strings.Count(err.Error(), "option") != 3 {
		t.Errorf("three wrong options: %v", err)
	}
}

// A prompt of several messages keeps their roles: answers in it are examples.
func TestMessages(t *testing.T) {
	file := jsonl(t, `{"prompt": [{"role": "system", "content": "Be brief."}, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "1+1?"}], "answer": "2"}`)
	env := envtest.Open(t, "dataset", map[string]any{"file": file})
	reset(t, env, 0)
	messages := env.Observe().Messages
	if len(messages) != 3 || messages[0].Role != "system" || messages[1].Role != "assistant" ||
		messages[2].Content != "1+1?" {
		t.Errorf("%+v", messages)
	}
	for prompt, want := range map[string]string{
		`{"role": "alien", "content": "x"}, {"role": "user", "content": "x"}`:     `message 0 has the role "alien"`,
		`{"role": "User", "content": "x"}`:                                        "did you mean user?",
		`{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}`: "expected the one that is to be answered",
		`{"role": "user", "content": "x"}, {"role": "system", "content": "y"}`:    "expected it first",
	} {
		spec, err := envs.Lookup("dataset")
		if err != nil {
			t.Fatal(err)
		}
		if _, err = spec.Make(map[string]any{"file": jsonl(t, `{"prompt": [`+prompt+`], "answer": "2"}`)}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", prompt, err, want)
		}
	}
}

// reasoning-gym's files are played as they are; problems with many solutions are verified. (One problem of each
// kind, made with reasoning-gym 0.1.25, Apache-2.0.)
func TestReasoningGym(t *testing.T) {
	env := envtest.Open(t, "dataset", map[string]any{"file": "testdata/reasoning_gym.jsonl", "shuffle": false,
		"first_seed": 0})
	var kinds []string
	for seed := range int64(7) {
		kind, _, _ := strings.Cut(begin(t, env, seed).Name, "/")
		kinds = append(kinds, kind)
		solution, ok := env.(envs.Solver).Solve()
		if !ok || !step(t, env, solution[0]).Success {
			t.Errorf("%s: the file's answer %q does not count", kind, solution)
		}
		reset(t, env, seed)
		if step(t, env, solution[0]+"9").Success {
			t.Errorf("%s: a wrong answer counts", kind)
		}
	}
	if got := strings.Join(kinds, " "); got != "basic_arithmetic chain_sum countdown gsm_symbolic mini_sudoku "+
		"simple_equations sokoban" {
		t.Errorf("kinds %s", got)
	}
}

// Instructions that are no near miss of a name are texts.
func TestInstructionsOfOneWord(t *testing.T) {
	for instruction, want := range map[string]string{"Answer:": "1+1? Answer:", "Box the answer.": "1+1? Box the answer.",
		"/no_think": "1+1? /no_think", "": "1+1?", "Hash the answer": "1+1? Hash the answer", "boxed it": "1+1? boxed it"} {
		env := envtest.Open(t, "dataset", map[string]any{"file": jsonl(t, `{"question": "1+1?", "answer": "2"}`),
			"instruction": instruction})
		if got := reset(t, env, 0); got != want {
			t.Errorf("%q: %q", instruction, got)
		}
	}
}
