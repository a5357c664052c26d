package trainer

import (
	"context"
	"fmt"
	"math"
	"slices"

	"gyre/orchestrate/loop/advantage"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/filter"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/run/metrics"
)

// Selection is what the filter kept of a batch of episodes, and the batch that is made of it: Episodes[i],
// RewardStd[i] and row i belong together.
type Selection struct {
	filter.Selection
	Episodes  []*episode.Episode
	RewardStd []float64 // standard deviation of the rewards in each episode's group, before filtering
	Batch     *train.Batch

	groups []int   // group ids in the order of Selection.Std
	scale  float64 // the filter's factor on advantages
	// of the batch before the filter: its longest episode less the first token, which is never predicted
	width          int
	oldFromSampler bool     // the old log-probs are the sampler's, unchecked
	gap            *float64 // the most that the sampler's log-probs are away from the trainer's; nil: not measured
	divergence     float64  // from the reference, where that is part of the rewards
}

// preparation is the phase between rollout and update: it filters a batch and fills its columns. It remembers nothing
// of a batch.
type preparation struct {
	*session.Session
	clock   *session.Clock        // nil: its times are not taken
	given   bool                  // episodes are given instead of played
	exact   bool                  // the sampler's log-probs equal the trainer's on this machine
	penalty *advantage.Controller // of the divergence in the rewards; nil: it is not in them
}

// choose filters the groups of a batch; kept episodes stay in their order. keepAll only attaches the groups'
// statistics (the analysis before the filter).
func (p *preparation) choose(ctx context.Context, episodes []*episode.Episode, keepAll bool) (Selection, error) {
	entropy, err := p.filterEntropies(ctx, episodes)
	if err != nil {
		return Selection{}, err
	}
	var ids []int
	index := map[int]int{}
	var groups [][]filter.Member
	for i, e := range episodes {
		g, ok := index[e.Group]
		if !ok {
			g = len(ids)
			index[e.Group] = g
			ids = append(ids, e.Group)
			groups = append(groups, nil)
		}
		m := filter.Member{Score: e.Score, Length: e.PolicyTokens()}
		if entropy != nil {
			m.Entropy = entropy[i]
		}
		groups[g] = append(groups[g], m)
	}
	options := p.Config.Filter
	if keepAll {
		options.Strategy = "none"
	}
	chosen, err := filter.Apply(groups, options)
	if err != nil {
		return Selection{}, err
	}
	for _, g := range chosen.Unscored {
		p.Log.Warnf("group %d was left out: its score is not a finite number", ids[g])
	}
	s := Selection{Selection: chosen, groups: ids, scale: 1}
	if !keepAll {
		if s.scale, err = chosen.LossScale(options.LossScaling); err != nil {
			return Selection{}, err
		}
	}
	for _, e := range episodes {
		s.width = max(s.width, len(e.IDs)-1)
		// An episode in which the policy said nothing has nothing to learn from.
		if g := index[e.Group]; slices.Contains(chosen.Kept, g) && e.PolicyTokens() > 0 {
			s.Episodes, s.RewardStd = append(s.Episodes, e), append(s.RewardStd, chosen.Std[g])
		}
	}
	s.Batch = session.BatchOf(s.Episodes)
	return s, nil
}

// filterEntropies computes each episode's mean policy entropy when the filter's metric asks for it.
func (p *preparation) filterEntropies(ctx context.Context, episodes []*episode.Episode) ([]float64, error) {
	if m := p.Config.Filter.Metric; m != "entropy" && m != "entropy_variance" {
		return nil, nil
	}
	entropies, err := p.Actor.Score(ctx, session.BatchOf(episodes), train.What{Entropy: true,
		Temperature: session.Temperature(p.Config)})
	if err != nil {
		return nil, fmt.Errorf("entropies for the filter: %w", err)
	}
	out := make([]float64, len(episodes))
	for i, e := range episodes {
		for _, h := range entropies[i] {
			out[i] += float64(h)
		}
		out[i] /= math.Max(float64(e.PolicyTokens()), 1)
	}
	return out, nil
}

// prepare fills all columns of a selection.
func (p *preparation) prepare(ctx context.Context, s *Selection, line metrics.Line) error {
	if err := p.score(ctx, s, line); err != nil {
		return err
	}
	return p.advantages(s, line)
}

// score fills the columns that models compute: old and reference log-probs, and values.
func (p *preparation) score(ctx context.Context, s *Selection, line metrics.Line) error {
	if err := p.oldLogprobs(ctx, s, line); err != nil {
		return err
	}
	b, what := s.Batch, train.What{Temperature: session.Temperature(p.Config)}
	if p.Reference != nil {
		err := p.clock.Measure("ref", func() (err error) {
			b.Reference, err = p.Reference.Score(ctx, b, what)
			return err
		})
		if err != nil {
			return fmt.Errorf("reference log-probs: %w", err)
		}
		line.Add(referenceMetrics{b.SampledMean(b.Reference)})
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if p.Critic == nil {
		return nil
	}
	err := p.clock.Measure("values", func() (err error) {
		b.Values, err = p.Critic.Score(ctx, b, what)
		return err
	})
	if err != nil {
		return fmt.Errorf("values: %w", err)
	}
	return nil
}

// oldLogprobs takes the sampler's log-probs where they are proven equal to the trainer's (the self-test at start) and
// those that replayed episodes carry, and computes the others.
func (p *preparation) oldLogprobs(ctx context.Context, s *Selection, line metrics.Line) error {
	trusted := !p.Config.Actor.RecomputeLogprobs && (p.exact || p.given)
	var others []int
	s.Batch.Old = make([][]float32, s.Batch.Len())
	for i, e := range s.Episodes {
		if trusted && e.Logprob != nil {
			s.Batch.Old[i] = e.Logprob
		} else {
			others = append(others, i)
		}
	}
	// Replayed log-probs are another policy's: their distance says nothing about this sampler.
	s.oldFromSampler = len(others) == 0 && !p.given
	if len(others) == 0 {
		return nil
	}
	var computed [][]float32
	err := p.clock.Measure("old_log_prob", func() (err error) {
		computed, err = p.Actor.Score(ctx, s.Batch.Take(others), train.What{Temperature: session.Temperature(p.Config)})
		return err
	})
	if err != nil {
		return fmt.Errorf("old log-probs: %w", err)
	}
	for k, i := range others {
		s.Batch.Old[i] = computed[k]
	}
	if !p.given {
		s.gap = widest(s.Episodes, others, s.Batch.Old)
		line.Add(gapMetrics{s.gap})
	}
	return nil
}

// widest is the largest distance of the sampler's log-probs from those of a column; nil where the sampler has given
// none.
func widest(episodes []*episode.Episode, rows []int, column [][]float32) *float64 {
	gap, known := 0.0, false
	for _, i := range rows {
		if episodes[i].Logprob == nil {
			continue
		}
		for t, sampled := range episodes[i].Mask {
			if sampled {
				gap, known = math.Max(gap, math.Abs(float64(column[i][t])-float64(episodes[i].Logprob[t]))), true
			}
		}
	}
	if !known {
		return nil
	}
	return &gap
}
