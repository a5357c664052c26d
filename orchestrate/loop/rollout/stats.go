package rollout

import (
	"time"

	"gyre/orchestrate/loop/episode"
)

// Stats says what a Play cost and what went wrong.
type Stats struct {
	Planned      int            // episodes
	Episodes     int            // those that were played to an end that is the policy's
	Turns        int            // of these
	PromptTokens int            // over all requests, cached ones included
	CachedTokens int            // those whose keys and values were found in the sampler's prefix cache
	NewTokens    int            // sampled
	Generation   time.Duration  // in the sampler
	EnvWait      time.Duration  // waiting for environments, nearly all of it with nothing to sample
	Stops        map[string]int // how many episodes ended why

	Failed   map[string]int // attempts at episodes that an environment ended, by cause (see Causes)
	Replayed int            // failed episodes whose second attempt succeeded
	LeftOut  int            // planned episodes that failed twice, or are all that is left of their group
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

func added(a, b map[string]int) map[string]int {
	if a == nil {
		a = map[string]int{}
	}
	for key, n := range b {
		a[key] += n
	}
	return a
}

// Metrics are what is logged of a Play.
type Metrics struct {
	Episodes int                `metric:"rollout/episodes" unit:"episodes" doc:"played, less those left out"`
	Turns    int                `metric:"rollout/turns" unit:"turns" doc:"of these episodes"`
	Prompts  int                `metric:"rollout/prompt_tokens" unit:"tokens" doc:"of all requests, cached ones too"`
	Replies  int                `metric:"rollout/new_tokens" unit:"tokens" doc:"sampled"`
	Stops    map[string]float64 `metric:"rollout/stop/{reason}" unit:"share" doc:"ended by terminated, actions, turns, length or a cause"`
	Failed   map[string]int     `metric:"rollout/failed/{cause}" unit:"attempts" doc:"that an environment ended"`
	Replayed int                `metric:"rollout/replayed" unit:"episodes" doc:"failed, then played to their ends"`
	LeftOut  int                `metric:"rollout/left_out" unit:"episodes" doc:"failed twice, or alone in their group"`
}

// Metrics gives what is logged: turns, tokens, and what became of the episodes.
func (t Stats) Metrics() Metrics {
	m := Metrics{Episodes: t.Episodes, Turns: t.Turns, Prompts: t.PromptTokens, Replies: t.NewTokens,
		Stops: map[string]float64{}, Failed: map[string]int{}, Replayed: t.Replayed, LeftOut: t.LeftOut}
	for _, stop := range episode.Stops {
		m.Stops[stop] = float64(t.Stops[stop]) / float64(max(1, t.Planned))
	}
	for _, cause := range Causes {
		m.Failed[cause] = t.Failed[cause]
	}
	return m
}
