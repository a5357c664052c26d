package builtin

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/quick"

	"gyre/envs"
	"gyre/envs/sandbox"
)

func TestLookup(t *testing.T) {
	for _, tag := range []string{"sokoban", "Frozen-Lake", "frozenlake", "frozen_lake", "BANDIT", "CoordSokoban"} {
		if _, err := envs.Lookup(tag); err != nil {
			t.Error(err)
		}
	}
	for tag, want := range map[string]string{
		"sokobann": "did you mean sokoban?", "FrozenLakes": "did you mean FrozenLake?", "chess": "gyre env list",
	} {
		if _, err := envs.Lookup(tag); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", tag, err, want)
		}
	}
	if n := len(envs.List()); n < 9 {
		t.Errorf("%d tags, expected the nine that ship", n)
	}
}

// What every environment promises, whatever its type: equal seeds and actions give equal episodes, on a fresh
// instance as on one that has played others before, an unknown action changes nothing, and nothing runs before
// Reset.
func TestContract(t *testing.T) {
	for _, spec := range envs.List() {
		// What another program promises is tried in its own package.
		if spec.Type == "remote" || spec.Type == "gateway" || spec.Tag == "McpQA" {
			continue
		}
		t.Run(spec.Tag, func(t *testing.T) {
			ctx := t.Context()
			a, b := make2(t, spec)
			if _, err := a.Step(ctx, "Up"); err == nil {
				t.Error("a step before Reset is no error")
			}
			property := func(seed int64, choices []byte) bool {
				b, _ = make2(t, spec)
				defer func() { b.Close() }()
				start, err := a.Reset(ctx, seed, 0)
				other, err2 := b.Reset(ctx, seed, 0)
				if err != nil || err2 != nil || start.Check() != nil {
					return false
				}
				if start.Instruction == "" || start.Instruction != other.Instruction ||
					!slices.Equal(start.Actions, other.Actions) || a.Observe().String() != b.Observe().String() {
					return false
				}
				actions := start.Actions
				for _, c := range choices {
					before := a.Observe().String()
					action, shouted := strconv.Itoa(int(c)), strconv.Itoa(int(c))
					if actions != nil {
						if r, err := a.Step(ctx, "no such action"); err != nil || r.Valid || r.Reward != 0 ||
							a.Observe().String() != before {
							return false
						}
						action = actions[int(c)%len(actions)]
						shouted = strings.ToUpper(action)
					}
					r, err := a.Step(ctx, action)
					s, err2 := b.Step(ctx, shouted)
					if err != nil || err2 != nil || r.Check() != nil || r.Reward != s.Reward || r.Done != s.Done ||
						r.Success != s.Success ||
						!r.Valid && r.Effective || a.Observe().String() != b.Observe().String() {
						return false
					}
					// Of free text an environment may say what was wrong with it; what a named action says is the
					// state.
					if actions != nil && !r.Effective && a.Observe().String() != before {
						return false
					}
					if r.Done {
						_, err := a.Step(ctx, action)
						return errors.Is(err, envs.ErrNotRunning)
					}
				}
				return true
			}
			episodes := 40
			if spec.Type == "deepcoder" || spec.Type == "tasks" { // each starts processes
				episodes = 4
			}
			if err := quick.Check(property, &quick.Config{MaxCount: episodes}); err != nil {
				t.Error(err)
			}
			for range 2 {
				if err := a.Close(); err != nil {
					t.Error("closing, twice:", err)
				}
			}
		})
	}
}

func make2(t *testing.T, spec envs.Spec) (envs.Env, envs.Env) {
	t.Helper()
	a, err := spec.Make(nil)
	if errors.Is(err, sandbox.ErrNoWalls) || errors.Is(err, exec.ErrNotFound) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := spec.Make(nil)
	if err != nil {
		t.Fatal(err)
	}
	return a, b
}

func Example() {
	spec, err := envs.Lookup("sokoban")
	if err != nil {
		panic(err)
	}
	env, err := spec.Make(map[string]any{"level": "######\n#@ $.#\n######"})
	if err != nil {
		panic(err)
	}
	defer env.Close()
	if _, err := env.Reset(context.Background(), 1, 0); err != nil {
		panic(err)
	}
	actions, _ := env.(envs.Solver).Solve()
	for _, action := range actions {
		r, err := env.Step(context.Background(), action)
		if err != nil {
			panic(err)
		}
		fmt.Printf("%s: reward %.1f, done %v\n%s\n", action, r.Reward, r.Done, env.Observe().Text)
	}
	// Output:
	// Right: reward -0.1, done false
	// ######
	// #_PXO#
	// ######
	// Right: reward 10.9, done true
	// ######
	// #__P√#
	// ######
}
