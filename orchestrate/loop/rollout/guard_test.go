package rollout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"gyre/envs"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
)

// An error that an environment returns is its own, however late, and the environment may be closed; what it gives up
// because its time is over is a time-out, and so is a call that does not return.
func TestErrorsAndTheirTime(t *testing.T) {
	own := errors.New("no such cell")
	for name, c := range map[string]struct {
		f         func(context.Context) error
		stop      string
		abandoned bool
	}{
		"in time":  {func(context.Context) error { return own }, episode.Error, false},
		"too late": {func(within context.Context) error { <-within.Done(); return own }, episode.Error, false},
		"gives up": {func(within context.Context) error {
			<-within.Done()
			return fmt.Errorf("asked: %w",
				within.Err())
		}, episode.Timeout, false},
		"late panic": {func(within context.Context) error { <-within.Done(); panic("out of cells") }, episode.Panic,
			false},
		"never there": {func(context.Context) error { <-hanging; return nil }, episode.Timeout, true},
	} {
		for range 3 { // whichever is noticed first, the end of the time or of the call
			_, err := guard(t.Context(), time.Millisecond,
				func(within context.Context) (int, error) { return 0, c.f(within) }, func() {})
			if call := (*callError)(nil); !errors.As(err, &call) || call.stop != c.stop ||
				call.abandoned != c.abandoned {
				t.Errorf("%s: %+v, want %s, abandoned %v", name, call, c.stop, c.abandoned)
			}
			if c.abandoned {
				break
			}
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
	envs.Register(envs.Spec{Tag: "misread", Type: "corridor", MaxActions: 6,
		NewOptions: func() any { return &corridorOptions{} },
		New:        func(o any) (envs.Env, error) { return misread{&corridor{options: o.(*corridorOptions)}}, nil }})
}

// Nobody learns a reply that its environment would take for another.
func TestMisreadExpertsAreRefused(t *testing.T) {
	one := source(1, 1, nil)
	one.Tag = "misread"
	_, err := player(t, nil, defaults()).Demonstrations(t.Context(),
		DemonstrationPlan{Envs: []config.Env{one}, Episodes: 1})
	if err == nil || !strings.Contains(err.Error(), `is read as ["Left"], not as ["Right`) {
		t.Errorf("got %v", err)
	}
}
