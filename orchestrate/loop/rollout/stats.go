package rollout

import (
	"context"
	"fmt"
	"strings"
	"time"

	"gyre/orchestrate/loop/episode"
)

// Stats says what a Play cost and what went wrong; of a Play that has ended, its tagged fields are logged.
type Stats struct {
	Planned      int // episodes
	Episodes     int `metric:"rollout/episodes" unit:"episodes" doc:"played, less those left out"`
	Turns        int `metric:"rollout/turns" unit:"turns" doc:"of these episodes"`
	PromptTokens int `metric:"rollout/prompt_tokens" unit:"tokens" doc:"of all requests of these episodes, cached ones too"`
	CachedTokens int // of the prompts, whose keys and values were found in the sampler's prefix cache
	NewTokens    int `metric:"rollout/new_tokens" unit:"tokens" doc:"sampled in these episodes"`

	Generation time.Duration      // in the sampler
	EnvWait    time.Duration      // waiting for environments, nearly all of it with nothing to sample
	Stops      map[string]int     // how many episodes ended why
	StopShares map[string]float64 `metric:"rollout/stop/{reason}" unit:"share" doc:"ended by terminated, actions, turns, length or a cause"`

	Failed   map[string]int `metric:"rollout/failed/{cause}" unit:"attempts" doc:"that an environment ended"`
	Replayed int            `metric:"rollout/replayed" unit:"episodes" doc:"failed, then played to their ends"`
	LeftOut  int            `metric:"rollout/left_out" unit:"episodes" doc:"failed twice, or alone in their group"`
	Failures []Failure      // in the order of the episodes, first attempts first
}

// merge adds what another rank's half of the same Play cost: waiting times are those of the rank that waited longest.
func (t *Stats) merge(other Stats) {
	t.Planned += other.Planned
	t.LeftOut += other.LeftOut
	t.Replayed += other.Replayed
	t.PromptTokens += other.PromptTokens
	t.CachedTokens += other.CachedTokens
	t.NewTokens += other.NewTokens
	t.Generation, t.EnvWait = max(t.Generation, other.Generation), max(t.EnvWait, other.EnvWait)
	t.Failures = append(t.Failures, other.Failures...)
	t.Stops, t.Failed = added(t.Stops, other.Stops), added(t.Failed, other.Failed)
}

// Then adds what the next batch of the same step cost; all are the episodes of both.
func (t *Stats) Then(next Stats, all []*episode.Episode) {
	sampled, waited := t.Generation+next.Generation, t.EnvWait+next.EnvWait
	t.merge(next)
	t.Generation, t.EnvWait, t.Turns = sampled, waited, 0
	t.complete(all)
}

func added(a, b map[string]int) map[string]int {
	if a == nil {
		a = map[string]int{}
	}
	for key, n := range b {
		a[key] += n
	}
	return a
}

// complete counts the episodes that were kept, and gives every reason and cause a number.
func (t *Stats) complete(kept []*episode.Episode) {
	t.Episodes, t.LeftOut, t.StopShares = len(kept), t.Planned-len(kept), map[string]float64{}
	for _, e := range kept {
		t.Turns += len(e.Turns)
	}
	for _, stop := range episode.Stops {
		t.StopShares[stop] = float64(t.Stops[stop]) / float64(max(1, t.Planned))
	}
	for _, cause := range Causes {
		t.Failed[cause] += 0
	}
}

// Causes are why an episode fails: its environment did not answer in time, panicked, or returned an error. A failed
// episode earns nothing, because nobody knows what the policy would have earned: it is played once more, and left out
// if it fails again.
var Causes = []string{episode.Timeout, episode.Panic, episode.Error}

// Failure is something that went wrong in one environment.
type Failure struct {
	Tag           string
	Group, Member int
	Seed          int64
	Cause         string // one of Causes; "" when only closing the environment failed
	Problem       string // one line; what another program says in it is quoted
}

// note adds what failed in an attempt at an episode.
func (t *Stats) note(r *runner) {
	failure := Failure{Tag: r.source.Tag, Group: r.group, Member: r.member, Seed: r.seed}
	switch {
	case r.failed():
		t.Failed = added(t.Failed, map[string]int{r.stop: 1})
		failure.Cause, failure.Problem = r.stop, r.game.failure.Error()
	case r.closing != nil:
		failure.Problem = r.closing.Error()
	default:
		return
	}
	t.Failures = append(t.Failures, failure)
}

// Warnings are the failures in words: one line for all of the same environment and cause, with the first of them.
func (t Stats) Warnings() []string {
	type kind struct{ tag, cause string }
	times, first := map[kind]int{}, map[kind]Failure{}
	var order []kind
	for _, f := range t.Failures {
		k := kind{f.Tag, f.Cause}
		if times[k]++; times[k] == 1 {
			first[k], order = f, append(order, k)
		}
	}
	var lines []string
	for _, k := range order {
		f, what := first[k], "failed ("+k.cause+")"
		if k.cause == "" {
			what = "could not be closed"
		}
		lines = append(lines, fmt.Sprintf("environment %s: %s %s, first in group %d, member %d, seed %d: %s", k.tag,
			count(times[k], "episode"), what, f.Group, f.Member, f.Seed, f.Problem))
	}
	return lines
}

// FailedCauses says how many episodes failed and why, as "timeout 12, error 4"; "" where none did.
func (t Stats) FailedCauses() string {
	var parts []string
	for _, cause := range Causes {
		if n := t.Failed[cause]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", cause, n))
		}
	}
	return strings.Join(parts, ", ")
}

// keep takes those episodes that somebody can learn from: not those that failed, nor one that is all that is left of
// its group, which nothing can be compared with.
func keep(runners []*runner) (kept []*runner) {
	members := map[int]int{}
	for _, r := range runners {
		if !r.failed() {
			members[r.group]++
		}
	}
	for _, r := range runners {
		if !r.failed() && (members[r.group] > 1 || r.source.GroupSize == 1) {
			kept = append(kept, r)
		}
	}
	return kept
}

// failureWindow is over how many steps the share of failed episodes is taken: a server that is away for one of them
// does not end the run.
const failureWindow = 4

// failureRate remembers the steps last played.
type failureRate struct {
	steps []Stats
	wait  time.Duration // before the last second attempt that waited; 0 = there was none since a step without failures
}

// The waits before second attempts grow from the first to the last of these.
const (
	firstWait = time.Second
	lastWait  = time.Minute
)

// pause waits before the second attempt where more than a share of the episodes failed: something that all of them
// need is away, and may come back.
func (f *failureRate) pause(ctx context.Context, failed, all int, most float64) error {
	if float64(failed) <= most*float64(all) {
		return nil
	}
	f.wait = min(max(2*f.wait, firstWait), lastWait)
	select {
	case <-time.After(f.wait):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// add counts a step. It is an error if more than a share of the episodes in the window could not be played.
func (f *failureRate) add(s Stats, most float64) error {
	if len(s.Failures) == 0 {
		f.wait = 0
	}
	f.steps = append(f.steps, s)
	f.steps = f.steps[max(0, len(f.steps)-failureWindow):]
	var all Stats
	for _, step := range f.steps {
		all.merge(step)
	}
	if float64(all.LeftOut) <= most*float64(all.Planned) {
		return nil
	}
	last := ""
	if n := len(s.Failures); n > 0 {
		last = ". The last failure: " + s.Failures[n-1].Problem
	}
	return fmt.Errorf("the environments failed in %d of the last %d episodes (%s), which is more than "+
		"rollout.max_failed = %g of them%s. "+
		"Mend what failed and go on with --resume", all.LeftOut, all.Planned, all.FailedCauses(), most, last)
}
