package remote

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gyre/envs"
)

// called is a reply that calls a tool.
func called(name, arguments string) string {
	return `I think.</think><tool_call>{"name": "` + name + `", "arguments": ` + arguments + `}</tool_call>`
}

// adapted opens the environment of a factory in testdata/standards.py and resets it.
func adapted(t *testing.T, factory, config string, seed int64) (envs.Env, envs.Start) {
	t.Helper()
	e := open(t, "RemoteText", map[string]any{"command": append(python(t), "--factory", factory, "--stdio"),
		"config": config})
	return e, begin(t, e, seed)
}

func begin(t *testing.T, e envs.Env, seed int64) envs.Start {
	t.Helper()
	start, err := e.Reset(t.Context(), seed, 0)
	if err != nil {
		t.Fatal(err)
	}
	return start
}

func act(t *testing.T, e envs.Env, action string) (envs.Result, string) {
	t.Helper()
	r, err := e.Step(t.Context(), action)
	if err != nil {
		t.Fatal(err)
	}
	return r, e.Observe().String()
}

// Classes of a registry laid out like RAGEN's are played, whether the registry can be imported or only the
// environment can.
func TestRAGEN(t *testing.T) {
	standin, err := filepath.Abs("testdata/standin")
	if err != nil {
		t.Fatal(err)
	}
	for _, without := range []string{"", "1"} {
		t.Setenv("WITHOUT_VERL", without)
		command := func(name string) []string {
			return append(python(t), "--ragen", name, "--source", standin, "--stdio")
		}
		shop := open(t, "RemoteText", map[string]any{"command": command("shop"),
			"config": `{"goods": ["ink"], "price": 2, "mode": "val"}`})
		if start := begin(t, shop, 3); start.Actions != nil || shop.Observe().Text != "val: Find ink." {
			t.Errorf("%q, %q", start.Actions, shop.Observe().Text)
		}
		if r, shown := act(t, shop, "walk"); r.Valid || r.Done || shown != "no walk" {
			t.Errorf("a wrong action: %+v, %q", r, shown)
		}
		r, shown := act(t, shop, "click[ink]")
		if !r.Done || !r.Success || r.Reward != 2 || !r.Effective || shown != "bought(green)" {
			t.Errorf("%+v, %q", r, shown)
		}
		if _, isThere := r.Info["end_of_page"]; !isThere || len(r.Info) != 1 {
			t.Errorf("numbers alone are metrics: %v", r.Info)
		}

		door := open(t, "Remote", map[string]any{"command": command("door")})
		for seed, first := range []string{"Blue", "Red"} {
			if got := begin(t, door, int64(seed)).Actions; len(got) != 2 || got[0] != first {
				t.Errorf("seed %d: actions %q", seed, got)
			}
			if r, _ := act(t, door, "blue"); r.Success != (seed == 1) || !r.Done {
				t.Errorf("seed %d: %+v", seed, r)
			}
		}

		if exec.Command(python(t)[0], "-c", "import yaml").Run() == nil {
			tag := open(t, "RemoteText", map[string]any{"command": command("Shop")})
			start := begin(t, tag, 1)
			if tag.Observe().Text != "train: Find rope." || start.Instruction != "Buy what is asked for." {
				t.Errorf("a tag: %q, %q", tag.Observe().Text, start.Instruction)
			}
		}
		unknown := open(t, "RemoteText", map[string]any{"command": command("shed")})
		if _, err := unknown.Reset(t.Context(), 1, 0); err == nil || !strings.Contains(err.Error(), "shed") {
			t.Errorf("an unknown name: %v", err)
		}
	}
}

// Actions of one field are the reply, of several fields a call; tools of the server are called by their names.
func TestOpenEnv(t *testing.T) {
	one, start := adapted(t, "standards:openenv", `{"most": 7}`, 3)
	if shown := one.Observe().Text; shown != "Guess from 1 to 7." || start.Actions != nil {
		t.Errorf("%q", shown)
	}
	if r, _ := act(t, one, "four"); r.Valid || r.Done {
		t.Errorf("what the server refuses: %+v", r)
	}
	if r, shown := act(t, one, " 2\n"); r.Done || r.Reward != 0 || shown != "wrong" || r.Info["off"] != 2 {
		t.Errorf("%+v, %q", r, shown)
	}
	if r, shown := act(t, one, "4"); !r.Done || !r.Success || r.Reward != 1 || shown != "right" {
		t.Errorf("%+v, %q", r, shown)
	}

	two, start := adapted(t, "standards:openenv", `{"kind": "two", "success": 2}`, 3)
	if tools := start.Tools; len(tools) != 1 || tools[0].Name != "act" || tools[0].Parameters["required"] == nil {
		t.Errorf("%+v", tools)
	}
	if r, _ := act(t, two, "4"); r.Valid {
		t.Errorf("no call: %+v", r)
	}
	if r, shown := act(t, two, called("act", `{"number": "x"}`)); r.Valid ||
		!strings.Contains(shown, "tool act: error: the server answers VALIDATION_ERROR") {
		t.Errorf("%+v, %q", r, shown)
	}
	reply := called("shout", `{}`) + called("act", `{"number": 1, "loud": true}`) + called("act", `{"number": 4}`) +
		called("act", `{"number": 4}`)
	r, _ := act(t, two, reply)
	var said []string
	for _, m := range two.Observe().Messages {
		said = append(said, m.CallID+" "+m.Content)
	}
	want := []string{"call_2 error: expected a call of one of act", "call_3 text: wrong\nloud: true", "call_4 right"}
	if !r.Done || r.Success || r.Reward != 1 || r.Valid || strings.Join(said, "; ") != strings.Join(want, "; ") {
		t.Errorf("%+v, %q, want %q", r, said, want)
	}

	tool, start := adapted(t, "standards:openenv", `{"kind": "tool"}`, 3)
	if tools := start.Tools; len(tools) != 1 || tools[0].Name != "guess" || tools[0].Description != "Guesses." {
		t.Errorf("%+v", tools)
	}
	if r, shown := act(t, tool, called("guess", `{"number": 4}`)); !r.Success || shown != "tool guess: right" {
		t.Errorf("%+v, %q", r, shown)
	}
	begin(t, tool, 4)
	if _, err := tool.Step(t.Context(), called("guess", `{"number": 0}`)); err == nil ||
		!strings.Contains(err.Error(), "the line is dead") {
		t.Errorf("a lost session: %v", err)
	}
}

func TestOpenRewardStandard(t *testing.T) {
	e, start := adapted(t, "standards:ors", `{}`, 8)
	if shown := e.Observe().Text; shown != "What is 3 + 1?\n(image)" {
		t.Errorf("%q", shown)
	}
	if tools := start.Tools; len(tools) != 1 || tools[0].Name != "hint" {
		t.Errorf("%+v", tools)
	}
	if r, shown := act(t, e, called("hint", `{}`)); r.Reward != -0.25 || r.Done || r.Info["hints"] != 1 ||
		shown != "tool hint: count" {
		t.Errorf("%+v, %q", r, shown)
	}
	if r, shown := act(t, e, called("help", `{}`)); r.Valid || shown != "tool help: error: no such tool" {
		t.Errorf("%+v, %q", r, shown)
	}
	if r, shown := act(t, e, "It is</think> 4 "); !r.Done || !r.Success || r.Reward != 1.5 ||
		shown != "tool final: done" {
		t.Errorf("%+v, %q", r, shown)
	}
	if begin(t, e, 9); !strings.HasPrefix(e.Observe().Text, "What is 4 + 1?") {
		t.Errorf("another task: %q", e.Observe().Text)
	}
	if _, err := e.Step(t.Context(), called("broken", `{}`)); err == nil ||
		!strings.Contains(err.Error(), "the sandbox is gone") {
		t.Errorf("a failing tool: %v", err)
	}
	none := open(t, "RemoteText", map[string]any{"command": append(python(t), "--factory", "standards:ors", "--stdio"),
		"config": `{"split": "none"}`})
	if _, err := none.Reset(t.Context(), 1, 0); err == nil || !strings.Contains(err.Error(), "has no tasks") {
		t.Errorf("an empty split: %v", err)
	}
}

// A policy is shown no escape sequences: a highlight becomes brackets, a colour its name.
func TestColours(t *testing.T) {
	e, _ := adapted(t, "standards:painted", `{}`, 1)
	if shown := e.Observe().Text; shown != "[S]FR(blue)|[Y(magenta)]" {
		t.Errorf("%q", shown)
	}
	if _, shown := act(t, e, "x"); shown != "tool: bold" {
		t.Errorf("%q", shown)
	}
}
