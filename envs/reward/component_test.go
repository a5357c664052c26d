package reward

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gyre/envs"
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
		{"format", options{"style": "hash"}, Reply{Text: "so #### **$5**"}, 1},
		{"format", options{"style": "hash"}, Reply{Text: "so #### -\\frac{1}{2}"}, 1},
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

// A reply's answer behind #### is read as a data set's is, and so is the gold answer where it was not.
func TestAnswersBehindMarks(t *testing.T) {
	for _, c := range []struct {
		reply, gold, unit string
		want              float64
	}{
		{"#### 42 apples", "42", "", 1},
		{"#### 42 apples", "42", "apple", 1},
		{"#### 42 pears", "42", "apples", 0},
		{"#### 3 m", "3", "cm", 0},
		{"#### 3 centimeters", "3", "cm", 1},
		{"#### **42**", "42", "", 1},
		{"#### 42.0", "42", "", 1},
		{"#### 42%", "42", "", 1},
		{"#### 42. That is it", "42", "", 1},
		{"#### $1,234", "1234", "", 1},
		{"#### 1,234", "1,234", "", 1},
		{"#### 1234", "1,234", "", 1},
		{"#### −5", "-5", "", 1},
		{"#### +5", "5", "", 1},
		{"#### 3", "3/4", "", 0},
		{"#### 3/4", "3/4", "", 1},
		{"#### 1.5", "1.5 million", "", 0},
		{"#### 1.5 million", "1.5 million", "", 1},
		{"#### 10, 20", "10, 20", "", 1},
		{"#### 10", "10, 20", "", 0},
		{"#### x = 5", "5", "", 1},
		{"#### 41\n#### 42", "42", "", 1},
		{"#### 42\n####", "42", "", 0},
		{"\\boxed{4\u200b2}", "42", "", 1},
		{"42\ufeff", "42", "", 1},
	} {
		r := Reply{Text: c.reply, Gold: c.gold, Unit: c.unit}
		if got := score(t, "correctness", nil, r).Value; got != c.want {
			t.Errorf("%+v: %v, want %v", r, got, c.want)
		}
	}
	for reply, want := range map[string]bool{"#### 42 apples": true, "#### 41": false, `\boxed{1} #### 42`: false} {
		for _, gold := range []string{"42", "6*7\n#### 42"} {
			if v := GradeReply(reply, gold, Strict); v.Correct != want {
				t.Errorf("%q for %q: %+v", reply, gold, v)
			}
		}
	}
	if v := GradeReply("#### 3 m", "#### 3 cm", Lenient); v.Correct || !slices.Contains(v.Rules, "other_unit") {
		t.Errorf("metres for centimetres: %+v", v)
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

// A line that nobody asked for is an error that shows it, and not the score of a reply; the program is not asked again.
func TestCommandWithStrayLines(t *testing.T) {
	for script, want := range map[string][]string{
		`echo 0.25; while read l; do echo 1; done`:                                                    {"0.25"},
		`sleep 0.3; echo ready; while read l; do echo 1; done`:                                        {"ready"},
		`n=0; while read l; do n=$((n+1)); if [ $n = 3 ]; then echo 0; fi; echo $n; done`:             {"1", "2", `"3"`},
		`n=0; while read l; do n=$((n+1)); echo $n; if [ $n = 2 ]; then echo; echo counted; fi; done`: {"1", "counted"},
	} {
		c := shell(t, script)
		for i, value := range want {
			s, err := c.Score(t.Context(), Reply{Text: strings.Repeat("x", 100_000)})
			if last := i == len(want)-1; !last && (err != nil || fmt.Sprint(s.Value) != value) {
				t.Errorf("%s: reply %d: %v, %v", script, i, s, err)
			} else if last && (!errors.Is(err, envs.ErrUnreliable) || !strings.Contains(err.Error(), "nobody asked for") ||
				!strings.Contains(err.Error(), value)) {
				t.Errorf("%s: %v, %v, want an error with %q", script, s, err, value)
			}
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
	if strings.Count(err.Error(), "no answer") != 1 || !strings.Contains(err.Error(), "(option timeout)") {
		t.Errorf("a program that hangs from its start on is asked once, within a named option: %v", err)
	}
	began := time.Now()
	_, err = shell(t, `while read l; do echo; done`, "timeout", 0.1, "start_timeout", 0.4).Score(t.Context(), Reply{})
	if err == nil || !strings.Contains(err.Error(), "it may take 400ms (option start_timeout); it printed an empty line, "+
		"which is no answer") || time.Since(began) > 5*time.Second {
		t.Errorf("an empty line: %v after %v", err, time.Since(began))
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

// serve is a component that asks a function of a Python file by the wrapper in scripts.
func serve(t *testing.T, source, name string) Component {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed")
	}
	file := filepath.Join(t.TempDir(), "rw.py")
	if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := New("mine", map[string]any{"component": "command",
		"command": []string{"python3", "../../scripts/reward_command.py", file, name}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// A Python file with verl's signature is served unchanged by the wrapper in scripts.
func TestPythonFunction(t *testing.T) {
	source := "print('loaded')\ndef plain(solution_str, ground_truth):\n    print('noise')\n    return float(solution_str == " +
		"ground_truth)\ndef rich(data_source, solution_str, ground_truth, extra_info=None, **kwargs):\n    return " +
		"{'score': len(solution_str), 'why': data_source}\ndef broken(solution_str, **kwargs):\n    raise " +
		"ValueError('no')\n"
	for name, want := range map[string]float64{"plain": 1, "rich": 3} {
		c := serve(t, source, name)
		for range 2 {
			if s, err := c.Score(t.Context(), Reply{Text: "abc", Gold: "abc"}); err != nil || s.Value != want {
				t.Errorf("%s: %v, %v, want %v", name, s, err, want)
			}
		}
	}
	for name, want := range map[string]string{"broken": "ValueError: no",
		"nosuch": `rw.py has no function 'nosuch'; it has plain, rich, broken`} {
		_, err := serve(t, source, name).Score(t.Context(), Reply{})
		if err == nil || strings.Count(err.Error(), want) != 1 {
			t.Errorf("%s: %v, want %q once", name, err, want)
		}
	}
}

// A Python function may return a number of any library, alone or among other things, or be a coroutine; one answer that
// is none does not end the program.
func TestPythonNumbers(t *testing.T) {
	source := `
import decimal, fractions, os
class Tensor:  # numbers of numpy and torch have item()
    def __init__(self, value): self.value = value
    def item(self):
        if isinstance(self.value, list): raise ValueError("several elements")
        return self.value
async def later(): return Tensor(0.75)
def score(solution_str, **rest):
    return {"float32": Tensor(0.5), "flag": Tensor(True), "decimal": decimal.Decimal("0.25"),
        "fraction": fractions.Fraction(1, 8), "coroutine": later(), "several": Tensor([1, 2]), "none": None,
        "dict": {"score": Tensor(2), "why": later, 3: float("nan"), "all": [Tensor(1)]},
        "pid": os.getpid()}[solution_str]
`
	c := serve(t, source, "score")
	ask := func(text string) (float64, error) {
		s, err := c.Score(t.Context(), Reply{Text: text})
		return s.Value, err
	}
	first, err := ask("pid")
	for text, want := range map[string]float64{"float32": 0.5, "flag": 1, "decimal": 0.25, "fraction": 0.125,
		"coroutine": 0.75, "dict": 2} {
		if got, err := ask(text); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"several", "none"} {
		if _, err := ask(text); err == nil || !strings.Contains(err.Error(), "expected a finite number") {
			t.Errorf("%s: %v", text, err)
		}
	}
	if last, again := ask("pid"); err != nil || again != nil || last != first {
		t.Errorf("process %v, then %v: it was started again (%v, %v)", first, last, err, again)
	}
}

// An answer is where a grader looks for it; without a mark, only a short reply may be one.
func TestReadable(t *testing.T) {
	long := strings.Repeat("so it goes on and on ", 5)
	for _, c := range []struct {
		how, text string
		want      bool
	}{
		{"auto", `it is \boxed{4}`, true}, {"auto", "it is\n#### 4", true}, {"auto", "<answer>4</answer>", true},
		{"auto", "4", true}, {"auto", long, false}, {"auto", "4\n5", false}, {"auto", " ", false},
		{"auto", long + `\boxed{}`, false}, {"boxed", "4", false}, {"boxed", `\boxed{4}`, true},
		{"hash", "#### 4", true}, {"hash", `\boxed{4}`, false}, {"whole", long, true}, {"whole", "", false},
	} {
		if got := Readable(c.text, c.how); got != c.want {
			t.Errorf("%s %q: %v", c.how, c.text, got)
		}
	}
}
