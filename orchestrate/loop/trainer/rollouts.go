package trainer

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/run/metrics"
)

// rollouts is the phase that gets the episodes of a step: it plays them, or takes those that were given.
type rollouts struct {
	session.Rollouts
	clock  *session.Clock
	replay *replay // episodes that are given; nil: they are played
	ahead  *ahead  // writes the schedule, and plays batches before their steps; nil: no step plays
}

// training plays (or replays) the step's episodes, saves them, and records what they were like.
func (r *rollouts) training(ctx context.Context, step int, line metrics.Line) ([]*episode.Episode, error) {
	if r.replay != nil {
		episodes := r.replay.at(step)
		line.Add(newEpisodeMetrics(episodes))
		return episodes, nil
	}
	c := r.Config
	before, err := r.Sampler.Engine.Stats()
	if err != nil {
		return nil, err
	}
	episodes, stats, err := r.batch(ctx, step)
	if err != nil {
		return nil, err
	}
	after, err := r.Sampler.Engine.Stats()
	if err != nil {
		return nil, err
	}
	r.clock.Sampling(before, after)
	r.clock.Add("gen", stats.Generation)
	r.clock.Add("env_wait", stats.EnvWait)
	line.Add(stats)
	line.Add(samplingMetrics{float64(stats.NewTokens) / max(stats.Generation.Seconds(), 1e-9)})
	line.Add(newEpisodeMetrics(episodes))
	return episodes, r.Save(episodes, fmt.Sprintf("step_%d.jsonl", step), c.Run.SaveRollouts == "all")
}

// batch plays the batch of a step.
func (r *rollouts) batch(ctx context.Context, step int) ([]*episode.Episode, rollout.Stats, error) {
	label := fmt.Sprintf("step %d rollout", step)
	return r.ahead.batch(func() ([]*episode.Episode, rollout.Stats, error) {
		if r.Window == nil {
			return r.Play(ctx, rollout.TrainingPlan(r.Config, step), label)
		}
		episodes, stats, err := r.Window.Next(ctx, step)
		if err == nil {
			r.Warn(stats, label)
		}
		return episodes, stats, err
	})
}

// analysis plays the separate analysis batch of a step.
func (r *rollouts) analysis(ctx context.Context, step int, line metrics.Line) ([]*episode.Episode, error) {
	plan := rollout.AnalysisPlan(r.Config, step)
	episodes, _, err := r.Play(ctx, plan, fmt.Sprintf("step %d analysis rollout", step))
	if err != nil {
		return nil, err
	}
	line.Add(sourceMetrics{Groups: plan.Groups(), GroupSize: plan.Sources[0].GroupSize})
	return episodes, r.Save(episodes, fmt.Sprintf("analysis_%d.jsonl", step), r.Config.Run.SaveRollouts == "all")
}

// rewardTable has a column per group and a row per member: its score. A group with fewer members than others ends in
// NaN.
func rewardTable(episodes []*episode.Episode) (t metrics.Table) {
	groups := session.Members(episodes)
	for i, group := range groups {
		t.Columns = append(t.Columns, fmt.Sprintf("group_%d", i))
		for k, e := range group {
			if k == len(t.Rows) {
				t.Rows = append(t.Rows, slices.Repeat([]any{math.NaN()}, len(groups)))
			}
			t.Rows[k][i] = e.Score
		}
	}
	return t
}

// replay feeds saved or hand-written episodes to the update instead of played ones. A file whose episodes all carry
// the same step number (or none) is used at every step; one with several is used in their order, one per training
// step.
type replay struct {
	path    string
	numbers []int // of the steps, ascending
	steps   map[int][]*episode.Episode
}

func readReplay(path string) (*replay, error) {
	episodes, err := session.ReadGiven(path)
	if err != nil {
		return nil, err
	}
	r := &replay{path: path, steps: map[int][]*episode.Episode{}}
	for _, e := range episodes {
		r.steps[e.Step] = append(r.steps[e.Step], e)
	}
	r.numbers = slices.Sorted(maps.Keys(r.steps))
	return r, nil
}

// openReplay reads the episodes for a run of so many steps.
func openReplay(path string, steps int) (*replay, error) {
	r, err := readReplay(path)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	if n := len(r.numbers); n > 1 && n < steps {
		return nil, fmt.Errorf("replay: %s holds episodes of %d steps but run.steps is %d: set run.steps=%d or fewer",
			path, n, steps, n)
	}
	return r, nil
}

// at returns the episodes of training step 1, 2, …
func (r *replay) at(step int) []*episode.Episode {
	if len(r.numbers) == 1 {
		step = 1
	}
	return r.steps[r.numbers[step-1]]
}
