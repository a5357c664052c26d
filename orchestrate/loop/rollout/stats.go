package rollout

import (
	"time"

	"gyre/orchestrate/loop/episode"
)

// Stats says what a Play cost and what went wrong.
type Stats struct {
	Planned      int // episodes
	Episodes     int // those that were played to an end that is the policy's
	Turns        int
	PromptTokens int           // over all requests, cached ones included
	CachedTokens int           // those whose keys and values were found in the sampler's prefix cache
	NewTokens    int           // sampled
	Generation   time.Duration // in the sampler
	EnvWait      time.Duration // waiting for environments, nearly all of it with nothing to sample
	Stops        map[string]int

	Failed   map[string]int // attempts at episodes that an environment ended, by cause (see Causes)
	Replayed int            // failed episodes whose second attempt succeeded
	LeftOut  int            // planned episodes that failed twice, or are all that is left of their group
	Failures []Failure      // in the order of the episodes, first attempts first

	TooLong  int // episodes whose first prompt left no room for a reply
	Shortest int // tokens of the shortest episode
}

// count adds an episode's last attempt.
func (t *Stats) count(r *runner) {
	if t.Stops == nil {
		t.Stops = map[string]int{}
	}
	t.Stops[r.stop]++
	if r.failed() {
		return
	}
	if n := len(r.transcript.ids); t.Episodes == 0 || n < t.Shortest {
		t.Shortest = n
	}
	t.Episodes++
	t.Turns += len(r.transcript.turns)
	if r.stop == episode.Length && len(r.transcript.turns) == 0 {
		t.TooLong++
	}
}

// merge adds what another rank's half of the same Play cost: waiting times are those of the rank that waited longest.
func (t *Stats) merge(other Stats) {
	if t.Episodes == 0 || other.Episodes > 0 && other.Shortest < t.Shortest {
		t.Shortest = other.Shortest
	}
	t.Planned, t.Episodes, t.Turns = t.Planned+other.Planned, t.Episodes+other.Episodes, t.Turns+other.Turns
	t.Replayed, t.LeftOut, t.TooLong = t.Replayed+other.Replayed, t.LeftOut+other.LeftOut, t.TooLong+other.TooLong
	t.PromptTokens, t.CachedTokens, t.NewTokens = t.PromptTokens+other.PromptTokens, t.CachedTokens+other.CachedTokens,
		t.NewTokens+other.NewTokens
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
