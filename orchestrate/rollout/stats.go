package rollout

import (
	"time"

	"gyre/orchestrate/episode"
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

	shortest int // tokens of the shortest episode
}

// Failure is something that went wrong in one environment.
type Failure struct {
	Tag           string
	Group, Member int
	Seed          int64
	Stop          string // timeout | panic | error; "" when only closing it failed
	Err           error
}

func (t *Stats) add(s *seat) {
	if t.Stops == nil {
		t.Stops = map[string]int{}
	}
	if t.Episodes == 0 || len(s.talk.ids) < t.shortest {
		t.shortest = len(s.talk.ids)
	}
	t.Episodes++
	t.Turns += len(s.talk.turns)
	t.EnvBusy += s.busy
	t.Stops[s.stop]++
	failure := Failure{Tag: s.source.Tag, Group: s.group, Member: s.member, Seed: s.seed}
	if s.game.failure != nil {
		failure.Stop, failure.Err = s.stop, s.game.failure
		t.Failures = append(t.Failures, failure)
	} else if s.problem != nil {
		failure.Err = s.problem
		t.Failures = append(t.Failures, failure)
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
