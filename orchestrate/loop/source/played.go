package source

import (
	"context"
	"fmt"
	"slices"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/filter"
	"gyre/orchestrate/loop/gradients"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/run/metrics"
)

// played plays the batches of each step at its beginning.
type played struct {
	Run
	schedule *schedule
	shares   *shares
	episodes []*episode.Episode // of the step in progress
	batches  int                // of the step in progress
	tokens   int                // sampled for them, at any time
}

// playing plays a batch; label is what people are told of it.
type playing func(batch int, label string) ([]*episode.Episode, rollout.Stats, error)

// Next implements Source.
func (p *played) Next(ctx context.Context, step int, line metrics.Line) (Batch, error) {
	b, err := p.next(step, line, func(batch int, label string) ([]*episode.Episode, rollout.Stats, error) {
		return p.Rollouts.Play(ctx, p.shares.decided.plan(p.Config, step, batch), label)
	})
	b.Provenance = Provenance{Weights: Present, Exact: p.Exact}
	return b, err
}

// next has the batches of a step played, saves their episodes, and writes what the sampler did into the step's line.
func (p *played) next(step int, line metrics.Line, play playing) (b Batch, err error) {
	before, err := p.Sampler.Engine.Stats()
	if err != nil {
		return b, err
	}
	p.schedule.begin(step)
	stats, err := p.fill(&b, step, play)
	if err != nil {
		return b, err
	}
	p.schedule.close(b.Episodes, stats)
	p.schedule.line.Sizes, p.episodes = p.shares.decided[p.State.NextBatch()], b.Episodes
	p.tokens = stats.NewTokens
	after, err := p.Sampler.Engine.Stats()
	if err != nil {
		return b, err
	}
	p.Clock.Sampling(before, after)
	p.Clock.Add("gen", stats.Generation)
	p.Clock.Add("env_wait", stats.EnvWait)
	line.Add(stats)
	if p.Config.Filter.MaxBatches > 1 && len(b.Episodes) > 0 {
		all := len(session.Members(b.Episodes))
		line.Add(RefillMetrics{p.batches, all, all - len(session.Members(b.Filling()))})
	}
	return b, p.Rollouts.Save(b.Episodes, fmt.Sprintf("step_%d.jsonl", step), p.Config.Run.SaveRollouts == "all")
}

// fill has one batch played, or as many as it takes to have enough groups (filter.max_batches).
func (p *played) fill(b *Batch, step int, play playing) (stats rollout.Stats, err error) {
	first, c := p.State.NextBatch(), p.Config
	groups, size := config.GroupsOf(c.Envs), config.EpisodesOf(c.Envs)
	for p.batches = 0; ; {
		n := p.batches
		episodes, cost, err := play(first+n, fmt.Sprintf("step %d rollout", step))
		if err != nil {
			return stats, err
		}
		for _, e := range episodes {
			e.Group, e.Index = e.Group+n*groups, e.Index+n*size
		}
		b.Episodes = append(b.Episodes, episodes...)
		if p.batches++; n == 0 {
			stats = cost
		} else {
			stats.Then(cost, b.Episodes)
		}
		if c.Filter.MaxBatches == 1 {
			return stats, nil
		}
		needed := enough(b.Episodes, c)
		if needed >= 0 {
			b.Surplus = len(b.Episodes) - needed
		}
		if needed >= 0 || p.batches == c.Filter.MaxBatches {
			return stats, nil
		}
	}
}

// enough is how many of the episodes have as many groups with a signal as a batch has groups; -1: not even all.
func enough(episodes []*episode.Episode, c *config.Config) int {
	groups, members := Candidates(episodes, nil)
	found := 0
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

// Candidates are the groups of some episodes and what the filter looks at in each; entropies are those of the
// episodes' tokens where it asks for them.
func Candidates(episodes []*episode.Episode, entropies [][]float32) (groups []gradients.Group,
	members [][]filter.Member) {
	groups = gradients.Groups(session.GroupIDs(episodes), nil)
	members = make([][]filter.Member, len(groups))
	for g, group := range groups {
		for _, row := range group.Rows {
			m := filter.Member{Score: episodes[row].Score, Length: episodes[row].PolicyTokens()}
			if entropies != nil {
				for _, h := range entropies[row] {
					m.Entropy += float64(h)
				}
				m.Entropy /= max(float64(m.Length), 1)
			}
			members[g] = append(members[g], m)
		}
	}
	return groups, members
}

// Updated implements Source: the step's sampling is complete, and the next one plays the batches after its own.
func (p *played) Updated(line metrics.Line) error {
	if took := p.schedule.sampling(); took > 0 {
		line.Add(SamplingMetrics{float64(p.tokens) / took})
	}
	first := p.State.NextBatch()
	if err := p.schedule.changed(first, p.batches); err != nil {
		return err
	}
	if err := p.shares.learn(first, p.episodes, line); err != nil {
		return err
	}
	if p.Config.Filter.MaxBatches > 1 || p.State.Batches > 0 {
		p.State.Batches = first - 1 + p.batches
	}
	return nil
}

// UnderWay implements Source: nothing is, between two steps.
func (p *played) UnderWay(context.Context) (func(string) error, error) { return nothing, nil }

// Close implements Source.
func (p *played) Close() error { return p.schedule.Close() }

// SamplingMetrics describe how a rollout was played.
type SamplingMetrics struct {
	Rate float64 `metric:"perf/gen_tokens_per_s" unit:"tokens/s" doc:"sampled tokens over the time in which the sampler was at work; with batches played ahead, the tokens of the step's batch over the sampling of the step"`
}

// RefillMetrics say what it took to fill a batch.
type RefillMetrics struct {
	Batches int `metric:"rollout/batches" doc:"batches played for the step (runs with filter.max_batches > 1)"`
	Groups  int `metric:"rollout/groups_played" unit:"groups" doc:"in them"`
	Left    int `metric:"rollout/groups_surplus" unit:"groups" doc:"left out because there are enough before them"`
}
