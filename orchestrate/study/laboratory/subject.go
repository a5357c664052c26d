package laboratory

import (
	"math"
	"slices"

	"gyre/orchestrate/loop/advantage"
	"gyre/orchestrate/loop/aggregation"
	"gyre/orchestrate/loop/importance"
)

// Setup is how an estimator is used.
type Setup struct {
	Estimator    string
	Groups, Size int // of a batch: groups, and episodes in each
	// Sizes are those of groups that start in a state, where the past has given each task its own; each group counts in
	// the loss as if it had Size episodes. nil: all have Size.
	Sizes       []int
	Discount    float64 // per token and per turn
	Lambda      float64 // GAE's
	Linear      bool    // before anything is divided or whitened
	Blind       bool    // the critic says 0 everywhere instead of the exact values
	Aggregation string
	Age         int    // of the policy that drew the episodes, in updates
	Ratio       string // importance.level of the ratios that correct for the age; "" = none
}

// options are the setup's for package advantage.
func (s Setup) options() advantage.Options {
	return advantage.Options{Advantage: s.Estimator, Gamma: s.Discount, Lambda: s.Lambda, HighLevelGamma: s.Discount,
		NormByStd: !s.Linear, StepWeight: 1, PartWeights: []float64{1, 1}}
}

// subject is an estimator at work in a game.
type subject struct {
	Setup
	game          Game
	policy        [][]float64
	paths         []path
	probabilities []float64 // of the paths under the policy that drew them, given their start
	episodes      []advantage.Trajectory
	ratios        [][]float64 // that correct the tokens of each path
	truth         []float64
}

func newSubject(g Game, s Setup) *subject {
	old := policy(g.behind(s.Age))
	out := &subject{Setup: s, game: g, policy: policy(g.Logits), paths: g.paths(), truth: g.Gradient(g.Logits)}
	values := g.values(old, s.Discount)
	for _, p := range out.paths {
		e, present, behaviour := out.episode(p, values, old)
		ratios := slices.Repeat([]float64{1}, len(e.Mask))
		if s.Ratio != "" {
			ratios = importance.Options{Level: s.Ratio, Correction: "none"}.Weights(present, behaviour, e.Mask)
		}
		out.episodes, out.ratios = append(out.episodes, e), append(out.ratios, ratios)
		out.probabilities = append(out.probabilities, g.probability(p, old))
	}
	return out
}

// episode is a path as estimators read it, with its tokens' log-probs. One token is observed before each turn. The
// parts of its reward are that of the turns before its last one and that of its last one.
func (s *subject) episode(p path, values, old [][]float64) (e advantage.Trajectory, present, behaviour []float32) {
	e.Parts = make([]float64, 2)
	grow := func(sampled bool, reward, value, energy float64) {
		e.Mask, e.Rewards = append(e.Mask, sampled), append(e.Rewards, reward)
		e.Values, e.Energies = append(e.Values, value), append(e.Energies, energy)
		present, behaviour = append(present, 0), append(behaviour, 0)
	}
	fresh, earned := true, 0.0
	for t, d := range p.decisions {
		observation := s.game.States[d.state].Observation
		if fresh {
			grow(false, 0, 0, 0)
			e.States = append(e.States, observation)
		}
		chosen, value := s.policy[observation], values[t][d.state]
		if s.Blind {
			value = 0
		}
		grow(true, d.reward, value, 1-2*chosen[d.action]+dot(chosen, chosen))
		at := len(e.Mask) - 1
		present[at] = float32(math.Log(chosen[d.action]))
		behaviour[at] = float32(math.Log(old[observation][d.action]))
		if earned += d.reward; d.turn {
			e.TurnEnds = append(e.TurnEnds, at)
			e.Parts[0], e.Parts[1], earned = e.Parts[0]+e.Parts[1], earned, 0
		}
		fresh = d.turn
	}
	return e, present, behaviour
}

// counts are what the episodes of groups count in the loss; nil: 1.
func (s *subject) counts(groups [][]int) (counts []float64) {
	if s.Sizes == nil {
		return nil
	}
	for _, members := range groups {
		counts = append(counts, slices.Repeat([]float64{float64(s.Size) / float64(len(members))}, len(members))...)
	}
	return counts
}

// gradient is the one that the estimator makes of a batch: the paths of each group.
func (s *subject) gradient(groups [][]int) []float64 {
	batch := slices.Concat(groups...)
	list, lengths := make([]advantage.Trajectory, 0, len(batch)), make([]int, 0, len(batch))
	for g, members := range groups {
		for _, i := range members {
			e := s.episodes[i]
			e.Group = g
			list, lengths = append(list, e), append(lengths, len(s.paths[i].decisions))
		}
	}
	var advantages [][]float64
	if o := s.options(); s.Linear {
		advantages, _ = advantage.Find(s.Estimator).Linear(list, o)
	} else {
		advantages = advantage.Compute(list, o, 1).Advantages
	}
	weights := aggregation.Weights(s.Aggregation, lengths, s.game.Horizon, s.counts(groups))
	out := make([]float64, len(s.truth))
	for k, i := range batch {
		decisions := s.paths[i].decisions
		for t, sampled := range list[k].Mask {
			if sampled {
				s.game.score(out, s.policy, decisions[0], weights[k]*advantages[k][t]*s.ratios[i][t])
				decisions = decisions[1:]
			}
		}
	}
	return out
}
