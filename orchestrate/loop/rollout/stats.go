package rollout

import (
	"time"

	"gyre/orchestrate/loop/episode"
)

// Stats says what a Play cost and what went wrong.
type Stats struct {
	Episodes     int
	Turns        int
	PromptTokens int           // over all requests, cached ones included
	CachedTokens int           // those whose keys and values were found in the sampler's prefix cache
	NewTokens    int           // sampled
	Generation   time.Duration // in the sampler
	EnvWait      time.Duration // waiting for environments, nearly all of it with nothing to sample
	EnvBusy      time.Duration // in environments, parsing and tokenising, summed over episodes
	Stops        map[string]int
	Failures     []Failure

	TooLong  int // episodes whose first prompt left no room for a reply
	Shortest int // tokens of the shortest episode
}

// Failure is something that went wrong in one environment.
type Failure struct {
	Tag           string
	Group, Member int
	Seed          int64
	Stop          string // timeout | panic | error; "" when only closing it failed
	Problem       string
}

func (t *Stats) add(s *seat) {
	if t.Stops == nil {
		t.Stops = map[string]int{}
	}
	if t.Episodes == 0 || len(s.talk.ids) < t.Shortest {
		t.Shortest = len(s.talk.ids)
	}
	t.Episodes++
	t.Turns += len(s.talk.turns)
	t.EnvBusy += s.busy
	t.Stops[s.stop]++
	failure := Failure{Tag: s.source.Tag, Group: s.group, Member: s.member, Seed: s.seed}
	if s.game.failure != nil {
		failure.Stop, failure.Problem = s.stop, s.game.failure.Error()
		t.Failures = append(t.Failures, failure)
	} else if s.problem != nil {
		failure.Problem = s.problem.Error()
		t.Failures = append(t.Failures, failure)
	}
}

// merge adds what another rank's part of the same Play cost: waiting times are those of the one that waited longest.
func (t *Stats) merge(other Stats) {
	if t.Episodes == 0 || other.Episodes > 0 && other.Shortest < t.Shortest {
		t.Shortest = other.Shortest
	}
	t.Episodes, t.Turns, t.TooLong = t.Episodes+other.Episodes, t.Turns+other.Turns, t.TooLong+other.TooLong
	t.PromptTokens, t.CachedTokens, t.NewTokens = t.PromptTokens+other.PromptTokens, t.CachedTokens+other.CachedTokens, t.NewTokens+other.NewTokens
	t.Generation, t.EnvWait, t.EnvBusy = max(t.Generation, other.Generation), max(t.EnvWait, other.EnvWait), t.EnvBusy+other.EnvBusy
	t.Failures = append(t.Failures, other.Failures...)
	if t.Stops == nil {
		t.Stops = map[string]int{}
	}
	for stop, n := range other.Stops {
		t.Stops[stop] += n
	}
}

// Metrics gives the numbers under rollout/: turns, tokens, and the share of episodes per reason to stop.
func (t Stats) Metrics() map[string]float64 {
	m := map[string]float64{
		"rollout/episodes":      float64(t.Episodes),
		"rollout/turns":         float64(t.Turns),
		"rollout/prompt_tokens": float64(t.PromptTokens),
		"rollout/new_tokens":    float64(t.NewTokens),
	}
	for _, stop := range episode.Stops {
		m["rollout/stop/"+stop] = float64(t.Stops[stop]) / float64(max(1, t.Episodes))
	}
	return m
}
