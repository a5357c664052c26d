package rollout

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"gyre/envs"
	"gyre/orchestrate/config"
)

// An error that an environment gives in time is its own; what it gives up for because its time is over is not.
func TestErrorsInTimeAreTheEnvironments(t *testing.T) {
	own := errors.New("no such cell")
	call := func(limit time.Duration, f func(context.Context) error) error {
		_, err := guard(t.Context(), limit, func(within context.Context) (int, error) { return 0, f(within) }, func() {})
		return err
	}
	if err := call(time.Minute, func(context.Context) error { return own }); err != own {
		t.Errorf("in time: %v, want %v", err, own)
	}
	for range 20 { // whichever is noticed first, the end of the time or of the call
		err := call(time.Millisecond, func(within context.Context) error { <-within.Done(); return own })
		if !errors.Is(err, errTimeout) {
			t.Errorf("too late: %v", err)
		}
	}
}

// misread reads something else than its expert writes.
type misread struct{ *corridor }

func (m misread) Reset(ctx context.Context, seed int64, member int) (envs.Start, error) {
	start, err := m.corridor.Reset(ctx, seed, member)
	start.ReadReply = func(string, int) []string { return []string{"Left"} }
	return start, err
}

func init() {
	envs.Register(envs.Spec{Tag: "misread", Type: "corridor", MaxActions: 6, NewOptions: func() any { return &corridorOptions{} },
		New: func(o any) (envs.Env, error) { return misread{&corridor{options: o.(*corridorOptions)}}, nil }})
}

// Nobody learns a reply that its environment would take for another.
func TestMisreadExpertsAreRefused(t *testing.T) {
	one := source(1, 1, nil)
	one.Tag = "misread"
	_, err := player(t, nil, defaults()).Demonstrations(t.Context(), DemonstrationPlan{Envs: []config.Env{one}, Episodes: 1})
	if err == nil || !strings.Contains(err.Error(), `is read as ["Left"], not as ["Right`) {
		t.Errorf("got %v", err)
	}
}
