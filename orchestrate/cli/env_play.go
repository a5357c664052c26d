package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
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
	if c.Int("episodes") < 1 {
		return Usagef("--episodes: expected at least 1, got %d", c.Int("episodes"))
	}
	spec, env, err := openEnv(c)
	if err != nil {
		return err
	}
	defer env.Close()
	if n := c.Int("actions"); n < 0 {
		return Usagef("--actions: expected at least 0, got %d", n)
	} else if n > 0 {
		spec.MaxActions = n
	}
	seed, episodes := c.Int64("seed"), c.Int("episodes")
	switch {
	case c.Bool("random"):
		return measure(c.Context, c.App.Writer, spec, "random policy", seed, episodes,
			func(seed int64) (envs.Outcome, error) {
				return envs.PlayRandom(c.Context, env, seed, spec.MaxActions, envs.Rand("gyre env play --random", seed))
			})
	case c.Bool("expert") && c.IsSet("episodes"):
		return measure(c.Context, c.App.Writer, spec, "expert", seed, episodes, func(seed int64) (envs.Outcome, error) {
			if _, err := env.Reset(c.Context, seed, 0); err != nil {
				return envs.Outcome{}, err
			}
			_, o, err := playExpert(c.Context, spec, env)
			return o, err
		})
	}
	start, err := env.Reset(c.Context, seed, 0)
	if err != nil {
		return err
	}
	if c.Bool("expert") {
		return showExpert(c.Context, c.App.Writer, spec, env)
	}
	return playByHand(c.Context, c.App.Reader, c.App.Writer, spec, env, start)
}

// measure plays episodes from a seed on and says how they ended.
func measure(ctx context.Context, w io.Writer, spec envs.Spec, who string, seed int64, episodes int,
	play func(seed int64) (envs.Outcome, error)) error {
	var successes, actions float64
	var returns statistics.Moments
	for i := range int64(episodes) {
		if err := ctx.Err(); err != nil {
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
		actions += float64(o.Actions)
	}
	n := float64(returns.Count())
	_, err := fmt.Fprintf(w, "%s, %s: %d episodes from seed %d, at most %d actions each\n"+
		"success rate  %s, its 95 %% interval\nmean return   %+.3f ± %.3f, twice the standard error\nmean actions  "+
		"%.2f\n",
		spec.Tag, who, episodes, seed, spec.MaxActions, table.Share(successes/n, episodes).Text, returns.Mean(),
		2*math.Sqrt(returns.Variance()/n), actions/n)
	return err
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
func showExpert(ctx context.Context, w io.Writer, spec envs.Spec, env envs.Env) error {
	fmt.Fprintf(w, "%s\n\n", shown(env))
	done, o, err := playExpert(ctx, spec, env)
	if err != nil {
		return err
	}
	if len(done) == 0 {
		return fmt.Errorf("%s: the expert found no solution of this state:\n%s", spec.Tag, shown(env))
	}
	outcome := "success"
	switch {
	case o.Success:
	case len(done) == spec.MaxActions:
		outcome = "no success within the actions that there are (--actions allows more)"
	default:
		outcome = "no success"
	}
	_, err = fmt.Fprintf(w, "actions (%d): %s\n\n%s\n%s, return %.4g\n", len(done),
		strings.Join(done, " "+actionSeparator+" "), shown(env), outcome, o.Return)
	return err
}

// playByHand reads lines of actions until the episode ends, the input ends or somebody types q.
func playByHand(ctx context.Context, in io.Reader, w io.Writer, spec envs.Spec, env envs.Env, start envs.Start) error {
	fmt.Fprintf(w, "%s\n\n", quote.Lines(start.Instruction))
	if names := start.Actions; names != nil {
		fmt.Fprintf(w, "Actions: %s (or their first letters); several in a line with %s; q quits.\n\n",
			quote.Lines(strings.Join(names, ", ")), actionSeparator)
	}
	fmt.Fprintln(w, shown(env))
	total, left := 0.0, spec.MaxActions
	lines := readLines(ctx, in)
	for left > 0 {
		var line string
		select {
		case <-ctx.Done():
			return ctx.Err()
		case text, open := <-lines:
			if !open || strings.TrimSpace(text) == "q" {
				fmt.Fprintf(w, "left with a return of %.4g\n", total)
				return nil
			}
			line = text
		}
		for action := range strings.SplitSeq(line, actionSeparator) {
			if action = strings.TrimSpace(action); action == "" || left == 0 {
				continue
			}
			r, err := env.Step(ctx, complete(action, start.Actions))
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
				outcome := "failed"
				if r.Success {
					outcome = "success"
				}
				_, err := fmt.Fprintf(w, "the episode is over: %s, return %.4g\n", outcome, total)
				return err
			}
		}
	}
	_, err := fmt.Fprintf(w, "the episode is over: no actions left, return %.4g\n", total)
	return err
}

// shown is what the environment shows, fit for a terminal: the text may be another program's.
func shown(env envs.Env) string { return quote.Lines(env.Observe().String()) }

// readLines delivers the lines of in until it ends or ctx does. A read from a terminal cannot be interrupted: after a
// cancellation the goroutine ends with the next line, or with the process.
func readLines(ctx context.Context, in io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
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
	match := ""
	for _, a := range actions {
		if strings.HasPrefix(strings.ToLower(a), strings.ToLower(text)) {
			if match != "" {
				return text
			}
			match = a
		}
	}
	if match == "" {
		return text
	}
	return match
}
