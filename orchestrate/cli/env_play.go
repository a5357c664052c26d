package cli

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gyre/envs"
	"gyre/internal/quote"
	"gyre/internal/statistics"
	"gyre/internal/table"
)

// actionSeparator stands between the actions of one line, as it does in a policy's replies by default.
const actionSeparator = "||"

func playEnv(c *cli.Context) error {
	if c.Bool("expert") && c.Bool("random") {
		return Usagef("--expert and --random exclude each other")
	}
	spec, env, err := openEnv(c)
	if err != nil {
		return err
	}
	defer env.Close()
	spec.MaxActions = cmp.Or(c.Int("actions"), spec.MaxActions)
	if c.Bool("random") {
		return measure(c, spec, "random policy", func(seed int64) (envs.Outcome, error) {
			return envs.PlayRandom(c.Context, env, seed, spec.MaxActions, envs.Rand("gyre env play --random", seed))
		})
	}
	if c.Bool("expert") && c.IsSet("episodes") {
		return measure(c, spec, "expert", func(seed int64) (envs.Outcome, error) {
			if _, err := env.Reset(c.Context, seed, 0); err != nil {
				return envs.Outcome{}, err
			}
			_, o, err := playExpert(c.Context, spec, env)
			return o, err
		})
	}
	start, err := env.Reset(c.Context, c.Int64("seed"), 0)
	if err != nil {
		return err
	}
	if c.Bool("expert") {
		return showExpert(c, spec, env)
	}
	return playByHand(c, spec, env, start)
}

// measure plays --episodes from --seed on and says how they ended.
func measure(c *cli.Context, spec envs.Spec, who string, play func(seed int64) (envs.Outcome, error)) error {
	seed, episodes := c.Int64("seed"), c.Int("episodes")
	var successes, actions int
	var returns statistics.Moments
	for i := range int64(episodes) {
		if err := c.Context.Err(); err != nil {
			return err
		}
		o, err := play(seed + i)
		if err != nil {
			return err
		}
		if o.Success {
			successes++
		}
		returns.Add(o.Return)
		actions += o.Actions
	}
	n := float64(episodes)
	return printf(c, `%s, %s: %d episodes from seed %d, at most %d actions each
success rate  %s, its 95 %% interval
mean return   %+.3f ± %.3f, twice the standard error
mean actions  %.2f
`, spec.Tag, who, episodes, seed, spec.MaxActions, table.Share(float64(successes)/n, episodes).Text, returns.Mean(),
		2*math.Sqrt(returns.Variance()/n), float64(actions)/n)
}

// playExpert lets the expert play the episode. It is asked again after every action: what it would do may depend on
// luck, or on what it is told.
func playExpert(ctx context.Context, spec envs.Spec, env envs.Env) ([]string, envs.Outcome, error) {
	var done []string
	var o envs.Outcome
	solver, ok := env.(envs.Solver)
	if !ok {
		return nil, o, Usagef("%s has no expert", spec.Tag)
	}
	for over := false; len(done) < spec.MaxActions && !over; {
		actions, ok := solver.Solve()
		if len(actions) == 0 || !ok {
			break
		}
		r, err := env.Step(ctx, actions[0])
		if err != nil {
			return done, o, err
		}
		done = append(done, actions[0])
		o.Return, o.Success, over = o.Return+r.Reward, r.Done && r.Success, r.Done
	}
	o.Actions = len(done)
	return done, o, nil
}

// showExpert prints what the expert does.
func showExpert(c *cli.Context, spec envs.Spec, env envs.Env) error {
	fmt.Fprintf(c.App.Writer, "%s\n\n", shown(env))
	done, o, err := playExpert(c.Context, spec, env)
	if err != nil {
		return err
	}
	if len(done) == 0 {
		return fmt.Errorf("%s: the expert found no solution of this state:\n%s", spec.Tag, shown(env))
	}
	outcome := "success"
	if !o.Success {
		outcome = "no success"
		if len(done) == spec.MaxActions {
			outcome += " within the actions that there are (--actions allows more)"
		}
	}
	return printf(c, "actions (%d): %s\n\n%s\n%s, return %.4g\n", len(done),
		strings.Join(done, " "+actionSeparator+" "), shown(env), outcome, o.Return)
}

// playByHand reads lines of actions until the episode ends, the input ends or somebody types q.
func playByHand(c *cli.Context, spec envs.Spec, env envs.Env, start envs.Start) error {
	w := c.App.Writer
	fmt.Fprintf(w, "%s\n\n", quote.Lines(start.Instruction))
	if start.Actions != nil {
		fmt.Fprintf(w, "Actions: %s (or their first letters); several in a line with %s; q quits.\n\n",
			quote.Lines(strings.Join(start.Actions, ", ")), actionSeparator)
	}
	fmt.Fprintln(w, shown(env))
	total, left, outcome := 0.0, spec.MaxActions, "no actions left"
	for lines := readLines(c.Context, c.App.Reader); left > 0; {
		var line string
		select {
		case <-c.Context.Done():
			return c.Context.Err()
		case text, open := <-lines:
			if !open || strings.TrimSpace(text) == "q" {
				return printf(c, "left with a return of %.4g\n", total)
			}
			line = text
		}
		for action := range strings.SplitSeq(line, actionSeparator) {
			if action = strings.TrimSpace(action); action == "" || left == 0 {
				continue
			}
			r, err := env.Step(c.Context, complete(action, start.Actions))
			if err != nil {
				return err
			}
			if !r.Valid {
				fmt.Fprintf(w, "%q is no action here\n", action)
				continue
			}
			left--
			total += r.Reward
			fmt.Fprintf(w, "\n%s\nreward %.4g, return %.4g, %d actions left\n", shown(env), r.Reward, total, left)
			if r.Done {
				left, outcome = 0, "failed"
			}
			if r.Done && r.Success {
				outcome = "success"
			}
		}
	}
	return printf(c, "the episode is over: %s, return %.4g\n", outcome, total)
}

// shown is what the environment shows, fit for a terminal: the text may be another program's.
func shown(env envs.Env) string { return quote.Lines(env.Observe().String()) }

// readLines delivers the lines of in until it ends or ctx does. A read from a terminal cannot be interrupted: after a
// cancellation the goroutine ends with the next line, or with the process.
func readLines(ctx context.Context, in io.Reader) <-chan string {
	lines := make(chan string)
	go func() { // ends with in, or with the first line after the end of ctx
		defer close(lines)
		for scanner := bufio.NewScanner(in); scanner.Scan(); {
			select {
			case lines <- scanner.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	return lines
}

// complete expands a prefix that only one action has.
func complete(text string, actions []string) string {
	matches := slices.DeleteFunc(slices.Clone(actions), func(a string) bool {
		return !strings.HasPrefix(strings.ToLower(a), strings.ToLower(text))
	})
	if len(matches) == 1 {
		return matches[0]
	}
	return text
}
