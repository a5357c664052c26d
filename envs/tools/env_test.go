package tools

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"gyre/envs"
	"gyre/envs/arithmetic"
	"gyre/envs/envtest"
)

func play(t *testing.T, tag string, options map[string]any, seed int64) *game {
	t.Helper()
	return envtest.Play[*game](t, tag, options, seed)
}

// callOf writes a reply that calls a tool.
func callOf(name string, arguments map[string]any) string {
	text, err := json.Marshal(map[string]any{"name": name, "arguments": arguments})
	if err != nil {
		panic(err)
	}
	return openCall + string(text) + closeCall
}

// step plays one reply and returns what the environment says to it.
func step(t *testing.T, g *game, reply string) (envs.Result, envs.Observation) {
	t.Helper()
	var last envs.Result
	for _, action := range readReply(reply, 5) {
		r, err := g.Step(t.Context(), action)
		if err != nil {
			t.Fatal(err)
		}
		last = r
	}
	return last, g.Observe()
}

func TestCalculator(t *testing.T) {
	g := play(t, "CalculatorQA", nil, 4)
	if !reflect.DeepEqual(g.Observe(), g.Observe()) || !strings.HasPrefix(g.Observe().Text, "What is ") {
		t.Errorf("the question: %+v", g.Observe())
	}
	expression := strings.TrimSuffix(strings.TrimPrefix(g.question.text, "What is "), "?")
	r, o := step(t, g, "I compute it.</think>"+callOf("calculator", map[string]any{"expression": expression}))
	want := []envs.Message{{Role: "tool", Name: "calculator", CallID: "call_1", Content: g.question.gold}}
	if r.Reward != 0 || r.Done || !r.Valid || r.Components[0].Name != "tool_calls" ||
		!reflect.DeepEqual(o.Messages, want) {
		t.Errorf("a call: %+v, %+v, want %+v", r, o, want)
	}
	// Two calls in one reply; the second is one that a template wrote with its arguments as text.
	_, o = step(t, g, callOf("calculator", map[string]any{"expression": "2 ** 0.5"})+"\n"+
		openCall+`{"name": "calculator", "arguments": "{\"expression\": \"1/0\"}"}`)
	if len(o.Messages) != 2 || o.Messages[0].Content != "1.4142135623731" ||
		o.Messages[1].Content != "error: a division by zero" {
		t.Errorf("two calls: %+v", o.Messages)
	}
	for reply, says := range map[string]string{
		openCall + "{nothing" + closeCall:                                 "error: this is no JSON",
		callOf("calcualtor", map[string]any{"expression": "1"}):           `error: no tool "calcualtor" (did you mean calculator?)`,
		callOf("calculator", map[string]any{"expression": 1}):             "takes the one argument",
		callOf("calculator", map[string]any{"expression": "1", "x": ""}):  "takes the one argument",
		openCall + `{"name": "calculator", "arguments": [1]}` + closeCall: "arguments must be an object",
	} {
		if r, o := step(t, g, reply); r.Valid || r.Done || len(o.Messages) != 1 ||
			!strings.Contains(o.Messages[0].Content, says) {
			t.Errorf("%s: %+v, %+v; want %q", reply, r, o, says)
		}
	}
	if r, o = step(t, g, "<answer> "+g.question.gold+".0 </answer>"); r.Reward != 1 || !r.Success || !r.Done ||
		o.Text != "The answer is right." {
		t.Errorf("the answer: %+v, %+v", r, o)
	}
	if _, err := g.Step(t.Context(), "1"); !errors.Is(err, envs.ErrNotRunning) {
		t.Errorf("a second answer: %v", err)
	}
	if _, err := g.Reset(t.Context(), 4, 0); err != nil || g.Observe().Text == "" || g.Observe().Messages != nil {
		t.Errorf("after another Reset: %+v, %v", g.Observe(), err)
	}
	if r, _ := step(t, g, "so it is 1 + 1</answer>"); !r.Done || r.Success || r.Reward != 0 {
		t.Errorf("a wrong answer: %+v", r)
	}
}

func TestPython(t *testing.T) {
	g := play(t, "PythonQA", map[string]any{"max_output": 20, "time_limit": 1}, 1)
	for code, want := range map[string]string{
		"x = 6\nx * 7":                        "42",
		"print('a')\nprint('b')":              "a\nb",
		"1 / 0":                               "error: ZeroDivisionError: division by zero (line 1)",
		"print('x' * 100)":                    strings.Repeat("x", 20) + "\n… (cut off)",
		"x = 1":                               "(no output)",
		"import socket; socket.socket()":      "error: stopped (forbidden)",
		"print('so far')\nwhile True: pass":   "so far\nerror: stopped (timeout)",
		"print('</tool_response><|im_end|>')": "</tool_response><|im\n… (cut off)",
	} {
		if _, o := step(t, g, callOf("python", map[string]any{"code": code})); len(o.Messages) != 1 ||
			o.Messages[0].Content != want {
			t.Errorf("%s: %+v, want %q", code, o.Messages, want)
		}
	}
	specs := g.specs()
	if len(specs) != 1 || specs[0].Name != "python" || specs[0].Parameters["type"] != "object" {
		t.Errorf("%+v", specs)
	}
	if _, err := json.Marshal(specs[0].Parameters); err != nil {
		t.Error(err)
	}
}

func TestReadReply(t *testing.T) {
	one, two := callOf("a", nil), callOf("b", nil)
	for reply, want := range map[string][]string{
		"":                                       nil,
		"no answer at all":                       nil,
		"thought: <answer>1</answer></think>x":   nil,
		"x</think><answer>\n2 </answer>":         {"2"},
		"3</answer>":                             {"3"},
		"so \\boxed{4}":                          {"4"},
		one + " then " + two:                     {one, two},
		one + "<answer>made up</answer>":         {one},
		"<tool_call></tool_call>":                nil,
		one + "\n" + two + one + one + one + one: {one, two, one},
	} {
		if got := readReply(reply, 3); !reflect.DeepEqual(got, want) {
			t.Errorf("%q is read as %q, want %q", reply, got, want)
		}
	}
}

// A file's row without a question or an answer is refused.
func TestFilesThatLackSomething(t *testing.T) {
	spec, err := envs.Lookup("CalculatorQA")
	if err != nil {
		t.Fatal(err)
	}
	for row, want := range map[string]string{`{"question": null, "answer": "1"}`: "row 1 (line 2): there is no question",
		`{"question": "a", "answer": "work\n####"}`: "row 1 (line 2): the question has no answer"} {
		path := filepath.Join(t.TempDir(), "rows.jsonl")
		if err := os.WriteFile(path, []byte(`{"question": "a", "answer": 1}`+"\n"+row), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := spec.Make(map[string]any{"problems": path}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", row, err, want)
		}
	}
}

// Generated questions ask what they say, and depend on the seed alone.
func TestQuestions(t *testing.T) {
	for seed := range int64(500) {
		g := play(t, "CalculatorQA", map[string]any{"terms": []any{1, 6}, "max_number": 30}, seed)
		expression := strings.TrimSuffix(strings.TrimPrefix(g.question.text, "What is "), "?")
		value, err := arithmetic.Grammar{}.Evaluate(expression)
		if err != nil {
			t.Fatalf("%s: %v", g.question.text, err)
		}
		var gold float64
		if err := json.Unmarshal([]byte(g.question.gold), &gold); err != nil || gold != value {
			t.Fatalf("%s: %s, want %g", g.question.text, g.question.gold, value)
		}
	}
}

func TestFilesAndOptions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "questions.jsonl")
	if err := os.WriteFile(path, []byte("{\"question\": \"One half?\", \"answer\": \"1/2\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := play(t, "CalculatorQA", map[string]any{"problems": path}, 7)
	if g.Observe().Text != "One half?" {
		t.Errorf("%+v", g.Observe())
	}
	if r, _ := step(t, g, "\\boxed{0.5}"); !r.Success {
		t.Errorf("%+v", r)
	}
	spec, _ := envs.Lookup("CalculatorQA")
	for want, options := range map[string]map[string]any{
		"option tools: expected":   {"tools": []any{"abacus"}},
		"option terms: expected":   {"terms": []any{3, 2}},
		"option max_number":        {"max_number": 0},
		"one of strict, lenient":   {"grading": "kind"},
		"no such file":             {"problems": "missing.jsonl"},
		"option max_output":        {"max_output": 0},
		"programs run in Python":   {"tools": []any{"python"}, "python": "no-such-python"},
		"isolation full or limits": {"tools": []any{"python"}, "isolation": "none"},
	} {
		if _, err := spec.Make(options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want one with %q", options, err, want)
		}
	}
}
