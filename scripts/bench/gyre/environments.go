package gyre

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"gyre/envs"
	_ "gyre/envs/builtin"
	"gyre/scripts/bench/work"
	"gyre/scripts/bench/worker"
)

// environment plays random episodes of at most ten actions for a while. A reset makes and shows an episode, a step
// plays an action and shows the state after it; drawing actions is not timed.
func (s *server) environment(t work.Task) (worker.Figures, error) {
	spec, err := envs.Lookup(t.Tag)
	if err != nil {
		return worker.Figures{}, err
	}
	env, err := spec.Make(nil)
	if err != nil {
		return worker.Figures{}, err
	}
	defer env.Close()
	count, spent := map[string]int{}, map[string]time.Duration{}
	timed := func(what string, call func() error) error {
		begin := time.Now()
		if err := call(); err != nil {
			return fmt.Errorf("%s: %w", t.Tag, err)
		}
		env.Observe()
		count[what]++
		spent[what] += time.Since(begin)
		return nil
	}
	rng := rand.New(rand.NewPCG(1, t.Seed))
	end := time.Now().Add(time.Duration(t.Seconds * float64(time.Second)))
	for seed := int64(10_000); time.Now().Before(end); seed++ {
		var start envs.Start
		err := timed(work.CountResets, func() (err error) {
			start, err = env.Reset(context.Background(), seed, 0)
			return err
		})
		var result envs.Result
		for played := 0; err == nil && played < 10 && !result.Done; played++ {
			action := drawn(rng, spec.Type, start.Actions)
			err = timed(work.CountSteps, func() (err error) {
				result, err = env.Step(context.Background(), action)
				return err
			})
		}
		if err != nil {
			return worker.Figures{}, err
		}
	}
	return worker.Figures{Seconds: spent[t.Counts].Seconds(), Tokens: count[t.Counts]}, nil
}

// drawn is a random action; names are those of an environment that names its own.
func drawn(rng *rand.Rand, kind string, names []string) string {
	switch {
	case len(names) > 0:
		return names[rng.IntN(len(names))]
	case kind == "sudoku":
		return fmt.Sprintf("place %d at row %d col %d", 1+rng.IntN(9), 1+rng.IntN(9), 1+rng.IntN(9))
	}
	return "1 + 2 * (3 - 4)"
}
