package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"gyre/envs"
	_ "gyre/envs/builtin"
	"gyre/scripts/bench/report"
	"gyre/scripts/bench/worker"
)

// environmentTags are the environments that are timed. Those that start processes or ask networks are not.
var environmentTags = []string{
	"SimpleSokoban", "LargerSokoban", "FrozenLake", "Bandit", "GaussianBandit", "Countdown", "MiniSudoku",
	"SimpleSudoku", "game_2048", "rubikscube",
}

// environmentSeconds is how long one environment is timed per repeat.
var environmentSeconds = 0.5

// What Gyre's environments must reach beside RAGEN's, in times its speed.
const (
	resetFloor = 50
	stepFloor  = 20
)

// times are means in seconds.
type times struct{ Reset, Step float64 }

// environments times Gyre's environments and RAGEN's, in turns.
func environments(ctx context.Context, o options, log io.Writer) ([]report.Pair, error) {
	ragen, err := startRAGEN(ctx, o)
	switch {
	case o.peers == nil:
	case err != nil:
		fmt.Fprintf(log, "RAGEN's environments: SKIPPED: %v; scripts/bench/setup-peers.sh DIR ragen installs them, "+
			"-peers-dir DIR finds them\n", err)
	default:
		defer ragen.close()
	}
	var pairs []report.Pair
	for _, tag := range environmentTags {
		fmt.Fprintf(log, "environment %s\n", tag)
		section := "Environments, episodes begun and actions played per second in one thread, the text of the state " +
			"included"
		resets := report.Pair{Section: section, Work: tag + ": resets", Against: "RAGEN",
			Floor: report.Floor{Speed: resetFloor}}
		steps := report.Pair{Section: section, Work: tag + ": steps", Against: "RAGEN",
			Floor: report.Floor{Speed: stepFloor}}
		for repeat := range o.repeats + 1 { // the first warms up
			own, err := timeEnvironment(ctx, tag, environmentSeconds)
			if err != nil {
				return nil, err
			}
			var theirs times
			beside := ragen != nil && slices.Contains(ragen.tags, tag) && resets.Note == ""
			if beside {
				if theirs, err = ragen.time(tag, environmentSeconds); err != nil {
					resets.Note, resets.Other, steps.Other = err.Error(), nil, nil
				}
			}
			if repeat > 0 {
				resets.Gyre, steps.Gyre = append(resets.Gyre, 1/own.Reset), append(steps.Gyre, 1/own.Step)
			}
			if repeat > 0 && beside && resets.Note == "" {
				resets.Other, steps.Other = append(resets.Other, 1/theirs.Reset), append(steps.Other, 1/theirs.Step)
			}
			if err := ctx.Err(); err != nil {
				return nil, context.Cause(ctx)
			}
		}
		pairs = append(pairs, resets, steps)
	}
	return pairs, nil
}

// timeEnvironment plays random episodes of at most ten actions. A reset makes and shows an episode, a step plays an
// action and shows the state after it; drawing actions is not timed.
func timeEnvironment(ctx context.Context, tag string, seconds float64) (times, error) {
	spec, err := envs.Lookup(tag)
	if err != nil {
		return times{}, err
	}
	env, err := spec.Make(nil)
	if err != nil {
		return times{}, err
	}
	defer env.Close()
	rng := rand.New(rand.NewPCG(1, 1))
	var resets, steps time.Duration
	var episodes, actions int
	for end := time.Now().Add(time.Duration(seconds * float64(time.Second))); time.Now().Before(end); episodes++ {
		begin := time.Now()
		start, err := env.Reset(ctx, int64(10_000+episodes), 0)
		if err != nil {
			return times{}, fmt.Errorf("%s: %w", tag, err)
		}
		env.Observe()
		resets += time.Since(begin)
		names := start.Actions
		for range 10 {
			action := ""
			switch {
			case len(names) > 0:
				action = names[rng.IntN(len(names))]
			case spec.Type == "sudoku":
				action = fmt.Sprintf("place %d at row %d col %d", 1+rng.IntN(9), 1+rng.IntN(9), 1+rng.IntN(9))
			default:
				action = "1 + 2 * (3 - 4)"
			}
			begin := time.Now()
			result, err := env.Step(ctx, action)
			if err != nil {
				return times{}, fmt.Errorf("%s: %w", tag, err)
			}
			env.Observe()
			steps += time.Since(begin)
			actions++
			if result.Done {
				break
			}
		}
	}
	return times{Reset: resets.Seconds() / float64(episodes), Step: steps.Seconds() / float64(actions)}, nil
}

// ragen is a process that times RAGEN's environments.
type ragen struct {
	tags    []string
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
}

// startRAGEN starts it with the sources that GYRE_BENCH_RAGEN_SOURCE names, or those under the peers' folder.
func startRAGEN(ctx context.Context, o options) (*ragen, error) {
	if o.peers == nil {
		return nil, nil
	}
	source := os.Getenv("GYRE_BENCH_RAGEN_SOURCE")
	if source == "" && o.peersDir != "" {
		source = filepath.Join(o.peersDir, "ragen-source")
	}
	if _, err := os.Stat(filepath.Join(source, "ragen", "env")); source == "" || err != nil {
		return nil, fmt.Errorf("%w: no checkout of RAGEN (GYRE_BENCH_RAGEN_SOURCE)", worker.ErrUnavailable)
	}
	python, err := o.python("ragen")
	if err != nil {
		return nil, err
	}
	r := &ragen{command: exec.CommandContext(ctx, python, "-W", "ignore", "scripts/bench/peers/ragen_envs.py", source)}
	if r.in, err = r.command.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := r.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	r.out = bufio.NewScanner(out)
	if err := r.command.Start(); err != nil {
		return nil, err
	}
	var hello struct{ Ready []string }
	if err := r.read(&hello); err != nil {
		r.close()
		return nil, err
	}
	r.tags = hello.Ready
	return r, nil
}

func (r *ragen) time(tag string, seconds float64) (times, error) {
	if err := json.NewEncoder(r.in).Encode(map[string]any{"tag": tag, "seconds": seconds}); err != nil {
		return times{}, err
	}
	var answer struct {
		Reset, Step float64
		Error       string
	}
	if err := r.read(&answer); err != nil {
		return times{}, err
	}
	if answer.Error != "" {
		return times{}, errors.New(answer.Error)
	}
	return times{answer.Reset, answer.Step}, nil
}

func (r *ragen) read(value any) error {
	if !r.out.Scan() {
		return errors.Join(errors.New("RAGEN's process ended"), r.out.Err())
	}
	return json.Unmarshal(r.out.Bytes(), value)
}

func (r *ragen) close() {
	r.in.Close()
	r.command.Wait() // it has nothing more to say
}
