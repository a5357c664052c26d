package envs_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"gyre/envs"
)

// options of the game, as [[envs]] options = { … } names them.
type options struct {
	Highest int `option:"highest" doc:"the secret is from 1 to this"`
}

// game asks for a secret number and says whether it is higher or lower.
type game struct {
	options options
	secret  int
	hint    string
	running bool
}

func (g *game) Reset(_ context.Context, seed int64, _ int) (envs.Start, error) {
	g.secret = 1 + envs.Rand("higherlower", seed).IntN(g.options.Highest)
	g.hint, g.running = "no guess yet", true
	return envs.Start{Instruction: fmt.Sprintf("Guess a number from 1 to %d.", g.options.Highest)}, nil
}

func (g *game) Observe() envs.Observation { return envs.Observation{Text: g.hint} }

func (g *game) Step(_ context.Context, action string) (envs.Result, error) {
	if !g.running {
		return envs.Result{}, envs.ErrNotRunning
	}
	guess, err := strconv.Atoi(action)
	if err != nil || guess < 1 || guess > g.options.Highest {
		return envs.Result{}, nil // no action: nothing changes, Valid is false
	}
	r := envs.Result{Reward: -0.1, Valid: true, Effective: true}
	switch {
	case guess < g.secret:
		g.hint = fmt.Sprintf("%d is too low", guess)
	case guess > g.secret:
		g.hint = fmt.Sprintf("%d is too high", guess)
	default:
		g.hint, g.running = "right", false
		r.Reward, r.Done, r.Success = 1, true, true
	}
	return r, nil
}

func (g *game) Close() error { return nil }

func init() {
	envs.Register(envs.Spec{
		Tag: "HigherLower", Type: "higherlower", Doc: "guess a number", MaxActions: 8,
		NewOptions: func() any { return &options{Highest: 50} },
		New:        func(o any) (envs.Env, error) { return &game{options: *o.(*options)}, nil },
	})
}

// The environment that the guide shows is the one above, which compiles and can be played.
func TestTheGuidesEnvironment(t *testing.T) {
	code := shownCode(t, "../docs/environments.md", "guide_test.go", "// options of the game", "// The environment that")
	if n := strings.Count(code, "\n") + 1; n > 60 {
		t.Errorf("the guide's environment takes %d lines", n)
	}
	spec, err := envs.Lookup("higherlower")
	if err != nil {
		t.Fatal(err)
	}
	env, err := spec.Make(map[string]any{"highest": 20})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := env.Reset(t.Context(), 3, 0); err != nil {
		t.Fatal(err)
	}
	low, high := 1, 20
	for range 5 { // 2^5 > 20
		middle := (low + high) / 2
		r, err := env.Step(t.Context(), strconv.Itoa(middle))
		if err != nil || !r.Valid {
			t.Fatal(r, err)
		}
		if r.Done {
			return
		}
		if strings.HasSuffix(env.Observe().Text, "low") {
			low = middle + 1
		} else {
			high = middle - 1
		}
	}
	t.Error("bisection did not find the number")
}

// shownCode is what stands in a source file from the line that begins with from to the one that begins with until. A
// page has to show it as it is.
func shownCode(t *testing.T, page, source, from, until string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(file), "\n"+from)
	code, _, ended := strings.Cut(code, "\n"+until)
	code = strings.TrimSpace(from + code)
	if !ended || !strings.Contains(string(text), code) {
		t.Errorf("%s shows another environment than envs/%s", page, source)
	}
	return code
}
