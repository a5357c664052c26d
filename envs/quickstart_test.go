package envs_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"gyre/envs"
	"gyre/envs/envtest"
)

var moves = []string{"Up", "Down", "Left", "Right"}

type dance struct {
	envs.Episode
	calls []string // the moves to be answered; the last one is not
	right int      // how many were answered with the same move
}

func (d *dance) Reset(_ context.Context, seed int64, _ int) (envs.Start, error) {
	random := envs.Rand("dance", seed)
	d.calls, d.right = nil, 0
	for range 6 {
		d.calls = append(d.calls, moves[random.IntN(len(moves))])
	}
	return d.Begin("Answer each call with the same move.", moves), nil
}

func (d *dance) Observe() envs.Observation {
	return envs.Observation{Text: append(d.calls, "end")[d.Steps]}
}

func (d *dance) Step(_ context.Context, action string) (envs.Result, error) {
	i, err := d.Take(action)
	if i < 0 {
		return envs.Result{}, err // no move of the game: nothing changes
	}
	hit := moves[i] == d.calls[d.Steps-1]
	if hit {
		d.right++
	}
	r := envs.Result{Valid: true, Effective: true, Done: d.Steps == 6, Success: d.right == 6}
	r.Reward = envs.Indicator(hit) / 6 // as in the run that learns; envs.Indicator(r.Success): at the end only
	return d.End(r)
}

func init() {
	envs.Register(envs.Spec{
		Tag: "Dance", Type: "dance", Doc: "answer each call with the same move", MaxActions: 6,
		NewOptions: func() any { return &struct{}{} },
		New:        func(any) (envs.Env, error) { return &dance{}, nil },
	})
}

// The environment of the quickstart is the one above: it compiles, and the same move to each call succeeds.
func TestTheQuickstartsEnvironment(t *testing.T) {
	shownCode(t, "../docs/quickstart.md", "quickstart_test.go", "var moves", "// The environment of the quickstart")
	env := envtest.Play[envs.Env](t, "Dance", nil, 3)
	for turn := 1; turn <= 6; turn++ {
		r, err := env.Step(t.Context(), env.Observe().Text)
		if err != nil || !r.Valid || r.Success != (turn == 6) || r.Done != (turn == 6) {
			t.Fatal(turn, r, err)
		}
	}
	if text := env.Observe().Text; text != "end" {
		t.Error(text)
	}
}

// shownCode is what stands in a source file from the line that begins with from to the one that begins with until. A
// page has to show it as it is.
func shownCode(t *testing.T, page, source, from, until string) {
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
}
