package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"gyre/envs"
)

// attend lets a command play an episode.
func attend(t *testing.T, set func(*options), task envs.Task) (envs.Verdict, error) {
	t.Helper()
	o := &options{Attempt: 60, MemoryMiB: 4096, Output: 1 << 20, Listen: "127.0.0.1:0"}
	set(o)
	e, err := newEnv(o)
	if err != nil {
		t.Fatal(err)
	}
	if task.Posted == nil {
		task.Posted = make(chan struct{})
	}
	return e.Attend(t.Context(), task)
}

func sh(line string) func(*options) { return func(o *options) { o.Command = []string{line} } }

func TestProgramSeesItsTaskAndSaysItsVerdict(t *testing.T) {
	task := envs.Task{Seed: 7, Group: 3, Stream: "train", BaseURL: "http://127.0.0.1:1/v1", Key: "secret"}
	v, err := attend(t, sh(`echo noise; [ "$GYRE_TASK" = '{"group":3,"seed":7,"stream":"train"}' ] &&
		[ "$OPENAI_BASE_URL $OPENAI_API_KEY" = "http://127.0.0.1:1/v1 secret" ] &&
		[ "$ANTHROPIC_BASE_URL $ANTHROPIC_API_KEY" = "http://127.0.0.1:1/v1 secret" ] && case $NO_PROXY in *127.0.0.1*) ;; *) exit 1;; esac
		echo '{"reward": 0.25}'; printf '{"reward": 0.5, "components": {"b": 1, "a": -1}, "task": "x"}'`), task)
	if err != nil || v.Reward != 0.5 || len(v.Components) != 2 || v.Task != "x" {
		t.Errorf("%+v, %v", v, err)
	}
	v, err = attend(t, func(o *options) { o.Command = []string{"printf", `%s`, `{"components": {"a": 1, "b": 0.5}}`} },
		task)
	if err != nil || v.Reward != 1.5 || !v.Result().Success {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestProgramsThatFail(t *testing.T) {
	for line, want := range map[string]string{
		"exit 3":                            "exit status 3",
		"echo why >&2; exit 1":              `its last words: "why"`,
		"true":                              "no line is a JSON object",
		`echo '{"reward": 1}'; exit 1`:      "exit status 1",
		`echo '{"reward": NaN}'`:            "invalid character",
		`echo '{"reward": 1e999}'`:          "1e999",
		`echo '{"reward": 1e31}'`:           "at most 1e+30",
		`echo '{"reward": 1, "turn": 0}'`:   "about a turn",
		`echo '{"score": 1}'`:               "no key",
		`echo '{"components": {"a/b": 1}}'`: "without / and",
		"yes":                               "max_output",
		`head -c 100000000 /dev/zero | tail -c 90000000 >/dev/null; python3 -c "b'x' * (1 << 34)"`: "exit status 1",
	} {
		if _, err := attend(t, sh(line), envs.Task{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
	if _, err := attend(t, func(o *options) { o.Command = []string{"/no/such/program", "x"} }, envs.Task{}); err == nil {
		t.Error("a program that is not there has played")
	}
}

// A program that hangs ends with all that it has started.
func TestProgramThatHangs(t *testing.T) {
	begun := time.Now()
	_, err := attend(t, func(o *options) {
		o.Attempt, o.Command = 0.3, []string{"sleep 1000 & trap '' TERM; wait; sleep 1000"}
	}, envs.Task{})
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) > 30*time.Second {
		t.Errorf("after %v: %v", time.Since(begun), err)
	}
	_, err = attend(t, func(o *options) { o.Command = []string{`sleep 1000 & echo '{"reward": 1}'`} }, envs.Task{})
	if err != nil || time.Since(begun) > 60*time.Second {
		t.Errorf("a program that left a child behind: %v after %v", err, time.Since(begun))
	}
}

// The reward that was posted counts, whatever becomes of the program.
func TestPostedRewardEndsTheProgram(t *testing.T) {
	posted := make(chan struct{})
	close(posted)
	for _, line := range []string{"exit 1", "sleep 1000"} {
		if _, err := attend(t, sh(line), envs.Task{Posted: posted}); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	offered := 0
	if _, err := attend(t, func(*options) {}, envs.Task{Posted: posted, Offer: func() { offered++ }}); err != nil ||
		offered != 1 {
		t.Errorf("without a command: %v, offered %d times", err, offered)
	}
	_, err := attend(t, func(o *options) { o.Attempt = 0.05 }, envs.Task{Offer: func() {}})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody came: %v", err)
	}
}

func TestIsNoGameForTheAgentLoop(t *testing.T) {
	spec, err := envs.Lookup("gateway")
	if err != nil {
		t.Fatal(err)
	}
	e, err := spec.Make(map[string]any{"command": "python3 agent.py"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Reset(t.Context(), 1, 0); err != nil {
		t.Error(err)
	}
	if _, err := e.Step(t.Context(), "x"); err == nil {
		t.Error("a step was taken")
	}
	if got := fmt.Sprintf("%q", e.(env).options.Command); got != `["python3 agent.py"]` {
		t.Errorf("the command is %s", got)
	}
	if _, err := spec.Make(map[string]any{"listen": "nowhere"}); err == nil {
		t.Error("an address without a port is accepted")
	}
}
