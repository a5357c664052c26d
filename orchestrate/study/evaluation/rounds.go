package evaluation

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"gyre/internal/table"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/study/inspect"
)

// Contender is a policy that is evaluated.
type Contender struct {
	Name      string
	Tokenizer string   // its directory
	Identity  Identity // the zero value: nothing is kept
	Open      func(ctx context.Context) (*session.Evaluator, error)
}

// Options are how contenders are played. Zero values are the defaults.
type Options struct {
	Keep Keep
	// Width, in percentage points, is what the widest interval of a success (of several contenders: of a difference
	// of successes) is to come down to by further rounds; 0 plays one round.
	Width   float64
	Console *metrics.Console
}

// mostTasks bounds a search for a width.
const mostTasks = 200_000

// Play plays each contender's validation set, in as many rounds as are needed, and returns a result for each. Rounds
// that are kept are not played again.
//
// The rule that ends the rounds looks at the width of an interval, never at where it lies, and plans ahead, so that it
// looks a few times only. Such a sequential interval keeps its coverage as it narrows (Chow and Robbins 1965); so that
// it does not stop at a batch that happens to be all alike, the width counts as at least 6/n, twice what the rule of
// three leaves open after n tasks.
func Play(ctx context.Context, c *config.Config, list []Contender, o Options) ([]Result, error) {
	results := make([]Result, len(list))
	groups := max(config.GroupsOf(c.Validation.Envs), 1)
	for done, rounds, tasks := 0, 1, 0; ; {
		for i, one := range list {
			results[i].Name = one.Name
			if len(list) > 1 {
				fmt.Fprintf(o.Console, "%s\n", one.Name)
			}
			if err := one.play(ctx, c, &results[i], done, rounds, o); err != nil {
				return nil, err
			}
		}
		if done = rounds; o.Width == 0 {
			return results, nil
		}
		for _, tag := range tagsOf(results[0].Episodes) {
			if unjudged(results[0].Episodes, tag) {
				return nil, fmt.Errorf("nobody knows what a success of %s is, so that its interval has no width: set "+
					"validation.success_at, or ask for no width. What was played is kept", tag)
			}
		}
		width, before := 100*widest(results), tasks
		tasks = len(byTask(results[0].Episodes, success))
		fmt.Fprintf(o.Console, "%d tasks: the widest interval is %.1f points, %.1f are asked for\n", tasks, width,
			o.Width)
		if width <= o.Width {
			return results, nil
		}
		if tasks == before {
			return nil, fmt.Errorf("there are %d different tasks, and their interval is %.1f points wide: ask for a "+
				"wider one. What was played is kept", tasks, width)
		}
		if rounds = next(done, width, o.Width); rounds*groups > mostTasks {
			return nil, fmt.Errorf("an interval of %.2g points would take about %.0f tasks, more than %d: ask for a "+
				"wider one. What was played is kept", o.Width, float64(done*groups)*math.Pow(width/o.Width,
				2), mostTasks)
		}
	}
}

// next is after how many rounds to look again: when the width should be there, at the latest when as many again have
// been played.
func next(done int, width, wanted float64) int {
	ratio := width / wanted
	return max(done+1, int(math.Ceil(float64(done)*min(ratio*ratio, 2))))
}

// play adds the rounds from first to end to a result.
func (one Contender) play(ctx context.Context, c *config.Config, to *Result, first, end int, o Options) (err error) {
	var player *session.Evaluator // opened when something is to be played
	defer func() {
		if player != nil {
			err = errors.Join(err, player.Close())
		}
	}()
	for n := first; n < end; n++ {
		found, at := o.Keep.find(one.Identity, n)
		hash := one.Identity.Hash(n)
		switch {
		case found != nil:
			fmt.Fprintf(o.Console, "result %s was played at %s and is kept in %s\n", hash,
				at.Format("2006-01-02 15:04 MST"), o.Keep.Dir)
		case player == nil:
			if player, err = one.Open(ctx); err != nil {
				return err
			}
			fallthrough
		default:
			if found, err = player.Round(ctx, n); err != nil {
				return err
			}
			if err := o.Keep.add(one.Identity, n, one.Name, found); err != nil {
				fmt.Fprintf(o.Console, "warning: %v\n", err)
			} else if o.Keep.Dir != "" && one.Identity != (Identity{}) {
				fmt.Fprintf(o.Console, "result %s is kept in %s\n", hash, o.Keep.Dir)
			}
		}
		to.add(found, n*config.GroupsOf(c.Validation.Envs), n*config.EpisodesOf(c.Validation.Envs))
	}
	_, shares := passes(to.Episodes)
	for name, of := range shares {
		if _, known := to.Metrics[name]; !known {
			to.Metrics[name] = of.mean()
		}
	}
	return nil
}

// add merges a round whose groups and episodes are numbered from these on.
func (r *Result) add(round *session.Evaluation, groups, episodes int) {
	for _, e := range round.Episodes {
		e.Group, e.Index = e.Group+groups, e.Index+episodes
	}
	r.Episodes, r.Parameters = append(r.Episodes, round.Episodes...), round.Parameters
	if round.Usage != nil {
		sum := *round.Usage
		if r.Usage != nil {
			sum = r.Usage.Plus(sum)
		}
		r.Usage = &sum
	}
	r.Summarize()
}

// widest is the width of the widest interval of what is asked for.
func widest(list []Result) (width float64) {
	tasks := math.Inf(1)
	for _, tag := range tagsOf(list[0].Episodes) {
		c := cluster(ofTag(list[0].Episodes, tag), success)
		tasks = min(tasks, float64(len(c.sums)))
		if len(list) == 1 {
			share, _ := c.interval(true)
			width = max(width, share.High-share.Low)
		}
	}
	for _, row := range Differences(list).Rows {
		if cell := row[3].(table.Cell); strings.HasSuffix(row[0].(string), "/success") {
			width = max(width, cell.High.(float64)-cell.Low.(float64))
		}
	}
	if math.IsNaN(width) {
		return 1
	}
	return max(width, 6/tasks)
}

// Inspect is a result as a log of Inspect.
func (r Result) Inspect(c *config.Config, of Identity) inspect.Log {
	succeeded := cluster(r.Episodes, success)
	scored := cluster(r.Episodes, func(e *episode.Episode) float64 { return e.Score })
	l := inspect.Log{Task: strings.Join(tagsOf(r.Episodes), "+"), Model: "gyre/" + r.Name, Created: time.Now(),
		Episodes: r.Episodes, Success: succeeded.mean(), Score: scored.mean(),
		Settings: map[string]any{"seed": c.Validation.Seed, "temperature": c.Validation.Temperature,
			"top_p": c.Validation.TopP, "max_tokens": c.Rollout.MaxTokens}}
	if of != (Identity{}) {
		l.Hash = of.Hash(0)
	}
	if len(succeeded.sums) > 1 {
		l.SuccessError, l.ScoreError = succeeded.deviation(), scored.deviation()
	}
	return l
}
