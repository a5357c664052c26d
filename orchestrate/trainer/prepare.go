package trainer

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"gyre/orchestrate/advantage"
	"gyre/orchestrate/episode"
	"gyre/orchestrate/filter"
	"gyre/torch"
)

// selection is what the filter made of a batch of episodes.
type selection struct {
	filter.Selection
	groups  []int // group ids in the order of Selection.Spread
	samples []*Sample
	scale   float64 // the filter's factor on advantages
}

// choose filters the groups of a batch; kept episodes stay in their order. keepAll only attaches spreads (the pre-filter analysis).
func (t *Trainer) choose(episodes []*episode.Episode, keepAll bool) (selection, error) {
	var ids []int
	index := map[int]int{}
	var groups [][]filter.Member
	entropy, err := t.filterEntropies(episodes)
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
	options := t.config.Filter
	if keepAll {
		options.Strategy = "none"
	}
	chosen, err := filter.Apply(groups, options)
	if err != nil {
		return selection{}, err
	}
	for _, g := range chosen.Unscored {
		t.log.Warnf("group %d was left out: its score is not a finite number", ids[g])
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
		// An episode in which the policy said nothing has nothing to learn from.
		if g := index[e.Group]; kept[g] && e.PolicyTokens() > 0 {
			s.samples = append(s.samples, &Sample{Episode: e, Spread: chosen.Spread[g]})
		}
	}
	return s, nil
}

// filterEntropies computes each episode's mean policy entropy when the filter's metric asks for it.
func (t *Trainer) filterEntropies(episodes []*episode.Episode) ([]float64, error) {
	if m := t.config.Filter.Metric; m != "entropy" && m != "entropy_variance" {
		return nil, nil
	}
	samples, position := make([]*Sample, len(episodes)), map[*Sample]int{}
	for i, e := range episodes {
		samples[i] = &Sample{Episode: e}
		position[samples[i]] = i
	}
	out := make([]float64, len(episodes))
	for _, micro := range microBatches(samples, all(len(samples)), t.config.Actor.MicroBatchTokens) {
		scores, err := t.actor.model.Score(pack(samples, micro), t.temperature(), true)
		if err != nil {
			return nil, fmt.Errorf("entropies for the filter: %w", err)
		}
		scatter(samples, micro, scores.Entropies, func(s *Sample, entropies []float32) {
			sum := 0.0
			for _, h := range entropies {
				sum += float64(h)
			}
			out[position[s]] = sum / math.Max(float64(s.PolicyTokens()), 1)
		})
	}
	return out, nil
}

// prepare fills the columns of the selected samples: old and reference log-probs, values, advantages and returns.
func (t *Trainer) prepare(ctx context.Context, s selection, metrics map[string]float64) error {
	if err := t.oldLogprobs(s.samples, metrics); err != nil {
		return err
	}
	if t.reference != nil {
		if err := t.logprobColumn(t.reference, s.samples, "ref", metrics,
			func(x *Sample, v []float32) { x.Reference = v }); err != nil {
			return fmt.Errorf("reference log-probs: %w", err)
		}
		metrics["rollout/ref_log_prob"] = maskedMean(s.samples, func(x *Sample) []float32 { return x.Reference })
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if t.critic != nil {
		if err := t.measure(metrics, "values", func() error { return t.valueColumn(s.samples) }); err != nil {
			return fmt.Errorf("values: %w", err)
		}
	}
	begin := time.Now()
	defer func() { metrics["timing_s/adv"] += time.Since(begin).Seconds() }()
	return t.estimate(s, metrics)
}

// oldLogprobs takes the sampler's log-probs where they are proven equal to the trainer's (the self-test at start) and those that replayed
// episodes carry, and computes the others.
func (t *Trainer) oldLogprobs(samples []*Sample, metrics map[string]float64) error {
	trusted := !t.config.Actor.RecomputeLogprobs && (t.parityProven || t.replay != nil)
	var others []*Sample
	for _, s := range samples {
		if trusted && s.Logprob != nil {
			s.Old = s.Logprob
		} else {
			others = append(others, s)
		}
	}
	// Replayed log-probs are another policy's: their distance says nothing about this sampler.
	t.oldFromSampler = len(others) == 0 && t.replay == nil
	if len(others) == 0 {
		return nil
	}
	err := t.logprobColumn(t.actor.model, others, "old_log_prob", metrics, func(s *Sample, v []float32) { s.Old = v })
	if err != nil {
		return fmt.Errorf("old log-probs: %w", err)
	}
	for _, s := range others {
		for i, sampled := range s.Mask {
			if sampled && s.Logprob != nil && t.replay == nil {
				gap := math.Abs(float64(s.Old[i]) - float64(s.Logprob[i]))
				metrics["rollout/logprob_gap_max"] = math.Max(metrics["rollout/logprob_gap_max"], gap)
			}
		}
	}
	return nil
}

func (t *Trainer) logprobColumn(model *torch.Model, samples []*Sample, phase string, metrics map[string]float64,
	assign func(*Sample, []float32)) error {
	return t.measure(metrics, phase, func() error {
		for _, micro := range microBatches(samples, all(len(samples)), t.config.Actor.MicroBatchTokens) {
			scores, err := model.Score(pack(samples, micro), t.temperature(), false)
			if err != nil {
				return err
			}
			scatter(samples, micro, scores.Logprobs, assign)
		}
		return nil
	})
}

func (t *Trainer) valueColumn(samples []*Sample) error {
	for _, micro := range microBatches(samples, all(len(samples)), t.config.Actor.MicroBatchTokens) {
		values, err := t.critic.model.Values(pack(samples, micro))
		if err != nil {
			return err
		}
		scatter(samples, micro, values, func(x *Sample, v []float32) { x.Values = v })
	}
	return nil
}

// estimate computes token rewards, the KL penalty in them, advantages and returns.
func (t *Trainer) estimate(s selection, metrics map[string]float64) error {
	a := t.config.Algorithm
	trajectories := make([]advantage.Trajectory, len(s.samples))
	for i, x := range s.samples {
		trajectories[i] = advantage.Trajectory{
			Group: x.Group, Mask: x.Mask, Rewards: tokenRewards(x.Episode, t.perTurn()),
			Values: widen(x.Values), TurnEnds: turnEnds(x.Episode),
		}
	}
	if t.state.KL.Coef != 0 && a.KLIn == "reward" {
		divergences := make([][]float64, len(s.samples))
		for i, x := range s.samples {
			var err error
			if divergences[i], err = advantage.KL(a.KLEstimator, x.Old, x.Reference, x.Mask); err != nil {
				return err
			}
		}
		metrics["actor/reward_kl_penalty_coeff"] = t.state.KL.Coef
		divergence := advantage.Penalize(trajectories, divergences, t.state.KL.Coef)
		metrics["actor/reward_kl_penalty"] = divergence
		if !t.analysing {
			t.state.KL.Update(divergence, len(s.samples))
		}
	}
	estimate, err := advantage.Compute(trajectories, a, s.scale)
	if err != nil {
		return err
	}
	for name, v := range estimate.Metrics {
		metrics[name] = v
	}
	for i, x := range s.samples {
		x.Advantages, x.Returns = narrow(estimate.Advantages[i]), narrow(estimate.Returns[i])
	}
	describe(s.samples, trajectories, metrics, t.critic != nil)
	return nil
}

// perTurn reports whether rewards are credited turn by turn. Estimators that compare whole episodes take the score: the rewards' sum
// after normalisation.
func (t *Trainer) perTurn() bool {
	a := t.config.Algorithm
	return t.config.Rollout.TurnRewards && !a.UsesGroups() && a.Advantage != "brpo"
}

// tokenRewards places an episode's rewards: by default its whole score on the last token that the policy sampled, with turn rewards
// each amount on its own token, or, where that was not sampled, on the sampled token before it (the first one if there is none).
func tokenRewards(e *episode.Episode, perTurn bool) []float64 {
	out := make([]float64, len(e.IDs))
	if !perTurn {
		if last := sampledBefore(e.Mask, len(e.Mask)); last >= 0 {
			out[last] = e.Score
		}
		return out
	}
	for _, r := range e.Rewards {
		at := sampledBefore(e.Mask, r.Token+1)
		if at < 0 {
			at = slices.Index(e.Mask, true)
		}
		if at >= 0 {
			out[at] += r.Value
		}
	}
	return out
}

// sampledBefore is the last sampled token before end, -1 if there is none.
func sampledBefore(mask []bool, end int) int {
	for i := end - 1; i >= 0; i-- {
		if mask[i] {
			return i
		}
	}
	return -1
}

// turnEnds lists the last sampled token of each turn in which the policy said something.
func turnEnds(e *episode.Episode) []int {
	var ends []int
	for _, turn := range e.Turns {
		if last := sampledBefore(e.Mask, turn.End); last >= turn.Reply {
			ends = append(ends, last)
		}
	}
	return ends
}

func widen(x []float32) []float64 {
	if x == nil {
		return nil
	}
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

func narrow(x []float64) []float32 {
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = float32(v)
	}
	return out
}
