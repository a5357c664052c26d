package reward

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func score(t *testing.T, name string, options map[string]any, r Reply) Score {
	t.Helper()
	c, err := New(name, options)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.Score(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestComponents(t *testing.T) {
	type options = map[string]any
	for i, c := range []struct {
		name    string
		options options
		reply   Reply
		want    float64
	}{
		{"correctness", nil, Reply{Text: `so \boxed{\dfrac12}`, Gold: `1/2`}, 1},
		{"correctness", nil, Reply{Text: `so \boxed{0.25}`, Gold: `1/4`}, 0},
		{"correctness", options{"mode": "lenient"}, Reply{Text: `so \boxed{0.25}`, Gold: `1/4`}, 1},
		{"correctness", nil, Reply{Text: "2+2\n#### 1,234", Gold: "1234"}, 1},
		{"correctness", nil, Reply{Text: "<answer> 7 </answer>", Gold: "7"}, 1},
		{"correctness", nil, Reply{Text: " 7\n", Gold: "7"}, 1},
		{"correctness", options{"answer": "boxed"}, Reply{Text: "7", Gold: "7"}, 0},
		{"correctness", nil, Reply{Text: "", Gold: ""}, 0},
		{"correctness", nil, Reply{Text: `\boxed{}`, Gold: ""}, 0},
		{"format", nil, Reply{Text: `First, step 1. \boxed{4}`}, 0.9},
		{"format", options{"style": "hash"}, Reply{Text: "so #### 5"}, 1},
		{"format", options{"style": "hash"}, Reply{Text: "so #### five"}, 0},
		{"format", options{"style": "think"}, Reply{Text: "<think>a\nb</think> 5"}, 1},
		{"format", options{"style": "think"}, Reply{Text: "<think>a</think>"}, 0},
		{"format", options{"pattern": `^\d+$`}, Reply{Text: "55"}, 1},
		{"length", nil, Reply{Text: strings.Repeat("é", 400)}, 0.5},
		{"length", options{"max_length": 8, "unit": "tokens"}, Reply{Tokens: 10}, 0.75},
		{"length", options{"target": 2, "unit": "words"}, Reply{Text: "a b"}, 1},
		{"boxed", nil, Reply{Text: `\boxed{}`}, 0},
		{"boxed", nil, Reply{Text: `\boxed{x}`}, 1},
		{"repetition", options{"n": 1}, Reply{Text: "a b a b"}, 0.5},
		{"repetition", nil, Reply{Text: "a b"}, 0},
		{"truncation", nil, Reply{Truncated: true}, 1},
		{"brevity", options{"component": "length", "target": 4}, Reply{Text: "abc"}, 0.75},
	} {
		if got := score(t, c.name, c.options, c.reply).Value; math.Abs(got-c.want) > 1e-12 {
			t.Errorf("case %d, %s of %+v: %v, want %v", i, c.name, c.reply, got, c.want)
		}
	}
}

func TestStretches(t *testing.T) {
	for text, want := range map[string]string{"é so #### 5 and": "#### 5 and", `ab \boxed{5} c`: `\boxed{5}`,
		"none": ""} {
		s := score(t, "correctness", nil, Reply{Text: text, Gold: "5"})
		if got := text[s.From:s.To]; got != want {
			t.Errorf("%q: the answer is %q, want %q", text, got, want)
		}
	}
}

func TestWrongOptions(t *testing.T) {
	for want, c := range map[string]struct {
		name    string
		options map[string]any
	}{
		"did you mean correctness?":             {"corectness", nil},
		"did you mean mode?":                    {"correctness", map[string]any{"mod": "strict"}},
		"did you mean lenient?":                 {"correctness", map[string]any{"mode": "leniant"}},
		"option answer: expected one of":        {"correctness", map[string]any{"answer": "here"}},
		"option style: expected":                {"format", map[string]any{"style": "nice"}},
		"option pattern:":                       {"format", map[string]any{"pattern": "("}},
		"expected a number > 0, got 0":          {"length", map[string]any{"target": 0}},
		"option unit: expected":                 {"length", map[string]any{"unit": "miles"}},
		"option component: expected a name":     {"x", map[string]any{"component": 5}},
		"expected a program with its arguments": {"command", nil},
		"option timeout: expected a number":     {"command", map[string]any{"command": []string{"x"}, "timeout": 0}},
	} {
		if _, err := New(c.name, c.options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s %v: error %v, want one with %q", c.name, c.options, err, want)
		}
	}
}

// Problems with many solutions are verified, not compared.
func TestVerifiers(t *testing.T) {
	countdown := map[string]any{"metadata": map[string]any{"numbers": []any{2, 3, 4}, "target": 14}}
	sudoku := map[string]any{"metadata": map[string]any{"puzzle": []any{[]any{4, 0, 0, 0}, []any{0, 3, 0, 0},
		[]any{0, 1, 3, 0}, []any{0, 0, 0, 0}}}}
	sokoban := map[string]any{"metadata": map[string]any{"gamestr": "+ + + + +\n+ * @ X +\n+ + + + +"}}
	for _, c := range []struct {
		source  string
		columns map[string]any
		text    string
		want    float64
	}{
		{"countdown", countdown, "2 + 3*4", 1}, {"countdown", countdown, "3*4+2 = 14", 1},
		{"countdown", countdown, "14", 0},
		{"countdown", countdown, "2+3*4+0", 0}, {"countdown", countdown, "2*7", 0},
		{"countdown", countdown, "2^3+4+2", 0},
		{"countdown", countdown, "(2+3*4", 0}, {"countdown", countdown, "2/(3-3)", 0},
		{"mini_sudoku", sudoku, "4 2 1 3\n1 3 4 2\n2 1 3 4\n3 4 2 1", 1},
		{"mini_sudoku", sudoku, "4 2 1 3\n1 3 4 2\n2 1 3 4\n3 4 1 2", 0},
		{"mini_sudoku", sudoku, "1 2 3 4", 0}, {"sokoban", sokoban, "R", 1}, {"sokoban", sokoban, "RR", 0},
		{"sokoban", sokoban, "U", 0},
		{"sokoban", sokoban, "RX", 0}, {"sokoban", nil, "R", 0},
	} {
		r := Reply{Text: `\boxed{` + c.text + "}", Source: c.source, Columns: c.columns, Gold: "another"}
		if got := score(t, "correctness", nil, r).Value; got != c.want {
			t.Errorf("%s %q: %v, want %v", c.source, c.text, got, c.want)
		}
	}
}

// shell is a component that runs a script of the shell.
func shell(t *testing.T, script string, more ...any) Component {
	t.Helper()
	options := map[string]any{"command": []string{"sh", "-c", script}, "timeout": 5.0, "start_timeout": 5.0}
	for i := 0; i < len(more); i += 2 {
		options[more[i].(string)] = more[i+1]
	}
	c, err := New("command", options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestCommand(t *testing.T) {
	for script, want := range map[string]float64{
		`while read l; do echo 0.5; done`:                                            0.5,
		`while read l; do echo '{"score": 2, "other": 3}'; done`:                     2,
		`while read l; do echo true; done`:                                           1,
		`while read l; do case "$l" in *'"solution_str":"hi"'*) echo 7;; esac; done`: 7,
	} {
		c := shell(t, script)
		for range 3 {
			if s, err := c.Score(t.Context(), Reply{Text: "hi"}); err != nil || s.Value != want {
				t.Errorf("%s: %v, %v, want %v", script, s, err, want)
			}
		}
	}
	if s, err := shell(t, `while read l; do echo '{"score": 2, "other": 3}'; done`, "key", "other").Score(t.Context(),
		Reply{}); err != nil || s.Value != 3 {
		t.Errorf("key: %v, %v", s, err)
	}
}

// A program that dies is started again, without anybody noticing.
func TestCommandRestarts(t *testing.T) {
	c := shell(t, `read l; echo 1`) // answers once
	for i := range 4 {
		if s, err := c.Score(t.Context(), Reply{}); err != nil || s.Value != 1 {
			t.Fatalf("reply %d: %v, %v", i, s, err)
		}
	}
}

func TestCommandFailures(t *testing.T) {
	for script, want := range map[string]string{
		`echo "out of cheese" >&2; exit 3`:               "out of cheese",
		`while read l; do echo nonsense; done`:           "expected a JSON number",
		`while read l; do echo '{"error": "bad"}'; done`: `it says "bad"`,
		`while read l; do echo '{"a": 1}'; done`:         `an object with one under "score"`,
		`while read l; do echo '"1"'; done`:              "expected a finite number",
	} {
		_, err := shell(t, script).Score(t.Context(), Reply{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", script, err, want)
		}
	}
	begin := time.Now()
	_, err := shell(t, `sleep 100 & while read l; do sleep 100; done`, "timeout", 0.2, "start_timeout",
		0).Score(t.Context(), Reply{Text: strings.Repeat("x", 1<<20)})
	if err == nil || !strings.Contains(err.Error(), "no answer in time: it may take 200ms") || time.Since(begin) > 8*time.Second {
		t.Errorf("a program that hangs: %v after %v", err, time.Since(begin))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := shell(t, "sleep 100", "timeout", 50).Score(ctx, Reply{}); err == nil {
		t.Error("a cancelled call gives a score")
	}
	if _, err := New("judge", map[string]any{"component": "command",
		"command": []string{"/no/such/program"}}); err != nil {
		t.Errorf("a program is started when it is first asked: %v", err)
	}
}

// Components with equal options share their processes, and each gets its own answers.
func TestCommandIsShared(t *testing.T) {
	script := `while read l; do n=${l#*solution_str\":\"}; echo ${n%%\"*}; done`
	dir := t.TempDir()
	started := filepath.Join(dir, "started")
	script = fmt.Sprintf("echo x >> %s; %s", started, script)
	var group sync.WaitGroup
	for i := range 20 {
		c := shell(t, script, "processes", 2)
		group.Go(func() {
			for k := range 10 {
				want := float64(100*i + k)
				if s, err := c.Score(t.Context(), Reply{Text: fmt.Sprint(want)}); err != nil || s.Value != want {
					t.Errorf("%v, %v, want %v", s, err, want)
				}
			}
		})
	}
	group.Wait()
	if text, err := os.ReadFile(started); err != nil || len(text) > 4 {
		t.Errorf("started %d processes, want at most 2 (%v)", len(text)/2, err)
	}
}

// A Python file with verl's signature is served unchanged by the wrapper in scripts.
func TestPythonFunction(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed")
	}
	file := filepath.Join(t.TempDir(), "rewards.py")
	source := "def plain(solution_str, ground_truth):\n    print('noise')\n    return float(solution_str == " +
		"ground_truth)\ndef rich(data_source, solution_str, ground_truth, extra_info=None, **kwargs):\n    return " +
		"{'score': len(solution_str), 'why': data_source}\ndef broken(solution_str, **kwargs):\n    raise " +
		"ValueError('no')\n"
	if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	serve := func(name string) Component {
		c, err := New("mine", map[string]any{"component": "command",
			"command": []string{"python3", "../../scripts/reward_command.py", file, name}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	for name, want := range map[string]float64{"plain": 1, "rich": 3} {
		for range 2 {
			if s, err := serve(name).Score(t.Context(), Reply{Text: "abc", Gold: "abc"}); err != nil ||
				s.Value != want {
				t.Errorf("%s: %v, %v, want %v", name, s, err, want)
			}
		}
	}
	if _, err := serve("broken").Score(t.Context(), Reply{}); err == nil ||
		!strings.Contains(err.Error(), "ValueError: no") {
		t.Errorf("an exception: %v", err)
	}
}
