package trainer

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/filter"
	"gyre/orchestrate/loop/gradients"
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
	state  *session.State
}

// training plays (or replays) the step's episodes, saves them, and records what they were like.
func (r *rollouts) training(ctx context.Context, s *Step) ([]*episode.Episode, error) {
	step, line := s.Number, s.Line
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
	episodes, stats, batches, err := r.ahead.batches(func() ([]*episode.Episode, rollout.Stats, int, error) {
		return r.batches(ctx, step)
	})
	if err != nil {
		return nil, err
	}
	s.Batches = batches
	after, err := r.Sampler.Engine.Stats()
	if err != nil {
		return nil, err
	}
	r.clock.Sampling(before, after)
	r.clock.Add("gen", stats.Generation)
	r.clock.Add("env_wait", stats.EnvWait)
	line.Add(stats)
	if r.ahead == nil || r.ahead.window == nil { // else what is sampled beside the update counts
		line.Add(samplingMetrics{float64(stats.NewTokens) / max(stats.Generation.Seconds(), 1e-9)})
	}
	line.Add(newEpisodeMetrics(episodes))
	return episodes, r.Save(episodes, fmt.Sprintf("step_%d.jsonl", step), c.Run.SaveRollouts == "all")
}

// batches plays the batches of a step: one, or as many as it takes to have enough groups (filter.max_batches).
func (r *rollouts) batches(ctx context.Context, step int) (all []*episode.Episode, stats rollout.Stats, n int,
	err error) {
	first, c := r.state.NextBatch(), r.Config
	groups, size := config.GroupsOf(c.Envs), config.EpisodesOf(c.Envs)
	for {
		episodes, cost, err := r.batch(ctx, step, first+n)
		if err != nil {
			return nil, stats, n, err
		}
		for _, e := range episodes {
			e.Group, e.Index = e.Group+n*groups, e.Index+n*size
		}
		all = append(all, episodes...)
		if n++; n == 1 {
			stats = cost
		} else {
			stats.Then(cost, all)
		}
		if n == c.Filter.MaxBatches || enough(all, c) >= 0 {
			return all, stats, n, nil
		}
	}
}

// batch plays one batch.
func (r *rollouts) batch(ctx context.Context, step, batch int) ([]*episode.Episode, rollout.Stats, error) {
	label := fmt.Sprintf("step %d rollout", step)
	if r.ahead == nil || r.ahead.window == nil {
		return r.Play(ctx, rollout.TrainingPlan(r.Config, step, batch), label)
	}
	episodes, stats, err := r.ahead.window.Next(ctx, step, batch)
	if err == nil {
		r.Warn(stats, label)
	}
	return episodes, stats, err
}

// enough is how many of the episodes have as many groups with a signal as a batch has groups; -1: not even all.
func enough(episodes []*episode.Episode, c *config.Config) int {
	groups, found := gradients.Groups(groupsOf(episodes), nil), 0
	members := make([][]filter.Member, len(groups))
	for g, group := range groups {
		for _, row := range group.Rows {
			members[g] = append(members[g], filter.Member{Score: episodes[row].Score,
				Length: episodes[row].PolicyTokens()})
		}
	}
	for g, signal := range filter.Signal(members, c.Filter) {
		if !signal {
			continue
		}
		if found++; found == config.GroupsOf(c.Envs) {
			return slices.Max(groups[g].Rows) + 1
		}
	}
	return -1
}

// refillMetrics say what it took to fill a batch.
type refillMetrics struct {
	Batches int `metric:"rollout/batches" doc:"batches played for the step (runs with filter.max_batches > 1)"`
	Groups  int `metric:"rollout/groups_played" unit:"groups" doc:"in them"`
	Left    int `metric:"rollout/groups_surplus" unit:"groups" doc:"left out because there are enough before them"`
}

// fullBatch leaves out the groups behind those that fill a batch.
func fullBatch(s *Step, c *config.Config) []*episode.Episode {
	if c.Filter.MaxBatches == 1 || s.Batches == 0 {
		return s.Episodes
	}
	chosen := s.Episodes
	if n := enough(chosen, c); n >= 0 {
		chosen = chosen[:n]
	}
	all := len(session.Members(s.Episodes))
	s.Line.Add(refillMetrics{s.Batches, all, all - len(session.Members(chosen))})
	return chosen
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
