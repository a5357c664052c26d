package trainer

import (
	"context"
	"fmt"
	"math"
	"time"

	"gyre/orchestrate/loop/advantage"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/filter"
	"gyre/torch"
)

// selection is what the filter made of a batch of episodes, and preparation of its samples.
type selection struct {
	filter.Selection
	groups         []int // group ids in the order of Selection.Spread
	samples        []*Sample
	scale          float64 // the filter's factor on advantages
	width          int     // of the batch before the filter: its longest episode less the first token, which is never predicted
	oldFromSampler bool    // the old log-probs are the sampler's, unchecked
	divergence     float64 // from the reference, where that is part of the rewards
}

// preparation is the phase between rollout and update: it filters a batch and fills its samples' columns. It remembers nothing of a batch.
type preparation struct {
	*equipment
	exact   bool                  // the sampler's log-probs equal the trainer's on this machine
	penalty *advantage.Controller // of the divergence in the rewards; nil: it is not in them
}

// choose filters the groups of a batch; kept episodes stay in their order. keepAll only attaches spreads (the pre-filter analysis).
func (p *preparation) choose(ctx context.Context, episodes []*episode.Episode, keepAll bool) (selection, error) {
	var ids []int
	index := map[int]int{}
	var groups [][]filter.Member
	entropy, err := p.filterEntropies(ctx, episodes)
	if err != nil {
		return selection{}, err
	}
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
	options := p.config.Filter
	if keepAll {
		options.Strategy = "none"
	}
	chosen, err := filter.Apply(groups, options)
	if err != nil {
		return selection{}, err
	}
	for _, g := range chosen.Unscored {
		p.log.Warnf("group %d was left out: its score is not a finite number", ids[g])
	}
	s := selection{Selection: chosen, groups: ids, scale: 1}
	if !keepAll {
		if s.scale, err = chosen.LossScale(options.LossScaling); err != nil {
			return selection{}, err
		}
	}
	kept := map[int]bool{}
	for _, g := range chosen.Kept {
		kept[g] = true
	}
	for _, e := range episodes {
		s.width = max(s.width, len(e.IDs)-1)
		// An episode in which the policy said nothing has nothing to learn from.
		if g := index[e.Group]; kept[g] && e.PolicyTokens() > 0 {
			s.samples = append(s.samples, &Sample{Episode: e, Spread: chosen.Spread[g]})
		}
	}
	return s, nil
}

// filterEntropies computes each episode's mean policy entropy when the filter's metric asks for it.
func (p *preparation) filterEntropies(ctx context.Context, episodes []*episode.Episode) ([]float64, error) {
	if m := p.config.Filter.Metric; m != "entropy" && m != "entropy_variance" {
		return nil, nil
	}
	samples, out, entropies := wrap(episodes), make([]float64, len(episodes)), make([][]float32, len(episodes))
	err := p.fill(ctx, samples, func(i int) *[]float32 { return &entropies[i] }, func(b torch.Batch) ([]float32, error) {
		scores, err := p.actor.model.Score(b, p.temperature(), true)
		return scores.Entropies, err
	})
	if err != nil {
		return nil, fmt.Errorf("entropies for the filter: %w", err)
	}
	for i, s := range samples {
		for _, h := range entropies[i] {
			out[i] += float64(h)
		}
		out[i] /= math.Max(float64(s.PolicyTokens()), 1)
	}
	return out, nil
}

// prepare fills the columns of the selected samples: old and reference log-probs, values, advantages and returns.
func (p *preparation) prepare(ctx context.Context, s *selection, metrics map[string]float64) error {
	if err := p.oldLogprobs(ctx, s, metrics); err != nil {
		return err
	}
	if p.reference != nil {
		if err := p.logprobColumn(ctx, p.reference, s.samples, "ref", metrics,
			func(i int) *[]float32 { return &s.samples[i].Reference }); err != nil {
			return fmt.Errorf("reference log-probs: %w", err)
		}
		metrics["rollout/ref_log_prob"] = maskedMean(s.samples, func(x *Sample) []float32 { return x.Reference })
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if p.critic != nil {
		if err := p.measure(metrics, "values", func() error { return p.valueColumn(ctx, s.samples) }); err != nil {
			return fmt.Errorf("values: %w", err)
		}
	}
	begin := time.Now()
	defer func() { metrics["timing_s/adv"] += time.Since(begin).Seconds() }()
	return p.estimate(s, metrics)
}

// oldLogprobs takes the sampler's log-probs where they are proven equal to the trainer's (the self-test at start) and those that replayed
// episodes carry, and computes the others.
func (p *preparation) oldLogprobs(ctx context.Context, s *selection, metrics map[string]float64) error {
	trusted := !p.config.Actor.RecomputeLogprobs && (p.exact || p.replay != nil)
	var others []*Sample
	for _, x := range s.samples {
		if trusted && x.Logprob != nil {
			x.Old = x.Logprob
		} else {
			others = append(others, x)
		}
	}
	// Replayed log-probs are another policy's: their distance says nothing about this sampler.
	s.oldFromSampler = len(others) == 0 && p.replay == nil
	if len(others) == 0 {
		return nil
	}
	err := p.logprobColumn(ctx, p.actor.model, others, "old_log_prob", metrics, func(i int) *[]float32 { return &others[i].Old })
	if err != nil {
		return fmt.Errorf("old log-probs: %w", err)
	}
	for _, x := range others {
		for i, sampled := range x.Mask {
			if sampled && x.Logprob != nil && p.replay == nil {
				gap := math.Abs(float64(x.Old[i]) - float64(x.Logprob[i]))
				metrics["rollout/logprob_gap_max"] = math.Max(metrics["rollout/logprob_gap_max"], gap)
			}
		}
	}
	return nil
}

func (p *preparation) logprobColumn(ctx context.Context, model *torch.Model, samples []*Sample, phase string, metrics map[string]float64,
	column func(i int) *[]float32) error {
	return p.measure(metrics, phase, func() error { return p.logprobs(ctx, model, samples, column) })
}

// logprobs fills a column with a model's log-probs at the rollouts' temperature.
func (e *equipment) logprobs(ctx context.Context, model *torch.Model, samples []*Sample, column func(i int) *[]float32) error {
	return e.fill(ctx, samples, column, func(b torch.Batch) ([]float32, error) {
		scores, err := model.Score(b, e.temperature(), false)
		return scores.Logprobs, err
	})
}

func (p *preparation) valueColumn(ctx context.Context, samples []*Sample) error {
	return p.fill(ctx, samples, func(i int) *[]float32 { return &samples[i].Values }, p.critic.model.Values)
}
