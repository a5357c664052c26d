package gradients

import (
	"maps"
	"math"
	"slices"

	"gyre/internal/statistics"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/advantage"
)

// Gradients that are measured beside those of the reward components.
const (
	Total   = "total"   // of the score that training uses
	Other   = "other"   // of what the score holds beside the weighted components (exact mode)
	Entropy = "entropy" // of the entropy term, with its coefficient
	KL      = "kl"      // of the KL term, with its coefficient
	// Baseline is of what the critic expected (exact mode of gae and bi_level_gae).
	Baseline = "baseline"
)

// The mode of components.mode in which the components' advantages add up to the total's; the other one is independent.
const exactMode = "exact"

// Rewarded is an episode as an estimator reads it, with its rewards by component: unweighted, token by token.
type Rewarded struct {
	advantage.Trajectory
	Components map[string][]float64
}

// Advantages are those of every reward component, one per episode.
type Advantages struct {
	Names  []string // of the components, other and baseline last
	Means  [][]float64
	Total  []float64
	Linear bool // the weighted components' gradients add up to the total's
	// Weights make the components add up, in the order of Names: 1 in exact mode, whose advantages carry them.
	Weights []float64
	// Tokens are the advantages of single tokens by component (the total last), episode and token, where they differ
	// within an episode. Means and Total are then their means.
	Tokens [][][]float32
}

// Occurring lists the components that any episode has, in alphabetical order: those whose names are not taken by what
// is measured beside them.
func Occurring(episodes []Rewarded) []string {
	names := map[string]bool{}
	for _, e := range episodes {
		for name := range e.Components {
			names[name] = true
		}
	}
	for _, taken := range []string{Total, Other, Entropy, KL, Baseline} {
		delete(names, taken)
	}
	return slices.Sorted(maps.Keys(names))
}

// Estimate gives every component of every episode its advantage, by the run's estimator: those that are named, of
// which some may not occur, or all. An episode without a component has earned 0 of it. Where no component occurs
// there are no names.
//
// In independent mode a component has the advantages that it would have as the only reward, before a critic knew
// anything of it. In exact mode it has its share of the total's: with grpo w·(r − mean)/(std of the total + 1e-6).
// What the score holds beside the weighted components is then a component of its own, and so is what the critic
// expected.
func Estimate(episodes []Rewarded, c config.Components, weights map[string]float64, a config.Algorithm) Advantages {
	names, exact := Occurring(episodes), c.Mode == exactMode
	if len(c.Names) > 0 {
		occurring := names
		lacks := func(name string) bool { return !slices.Contains(occurring, name) }
		names = slices.DeleteFunc(slices.Clone(c.Names), lacks)
	}
	out := Advantages{Names: names, Linear: exact}
	if len(names) == 0 {
		return out
	}
	trajectories, rest := make([]advantage.Trajectory, len(episodes)), make([][]float64, len(episodes))
	for i, e := range episodes {
		trajectories[i], rest[i] = e.Trajectory, slices.Clone(e.Rewards)
	}
	var rewards [][][]float64 // by component, episode and token; weighted in exact mode
	for _, name := range names {
		weight, given := weights[name]
		if !given {
			weight = 1
		}
		own := make([][]float64, len(episodes))
		for i, e := range episodes {
			own[i] = make([]float64, len(e.Mask))
			for t, v := range e.Components[name] {
				rest[i][t] -= weight * v
				if own[i][t] = v; exact {
					own[i][t] = weight * v
				}
			}
		}
		out.Weights, rewards = append(out.Weights, weight), append(rewards, own)
	}
	estimator, complete := advantage.From(a), negligible(rest, episodes)
	estimator.SoftReweight, estimator.LengthWeight, estimator.ZeroTaskAdvantage = false, false, false
	var shares [][][]float64
	if exact {
		if !complete {
			out.Names, rewards = append(out.Names, Other), append(rewards, rest)
		}
		var baseline [][]float64
		if shares, baseline = advantage.Share(trajectories, rewards, estimator); baseline != nil {
			out.Names, shares = append(out.Names, Baseline), append(shares, baseline)
		}
		out.Weights = slices.Repeat([]float64{1}, len(out.Names))
	} else {
		for _, own := range rewards {
			shares = append(shares, alone(trajectories, own, estimator))
		}
		e := advantage.Find(a.Advantage)
		out.Linear = complete && !e.Whitens && !a.UsesCritic() && !e.Adapts && !(a.Divides() && a.NormByStd)
	}
	out.collect(trajectories, append(shares, advantage.Compute(trajectories, estimator, 1).Advantages))
	return out
}

// alone are the advantages of a component as if it were the only reward.
func alone(episodes []advantage.Trajectory, rewards [][]float64, o advantage.Options) [][]float64 {
	own := slices.Clone(episodes)
	for i := range own {
		own[i].Rewards, own[i].Values, own[i].Parts = rewards[i], make([]float64, len(own[i].Mask)), nil
	}
	return advantage.Compute(own, o, 1).Advantages
}

// collect keeps the means of every episode, and the tokens' own advantages where they say more.
func (a *Advantages) collect(episodes []advantage.Trajectory, all [][][]float64) {
	varied := false
	var tokens [][][]float32
	for _, component := range all {
		means, narrow := make([]float64, len(episodes)), make([][]float32, len(episodes))
		for i, e := range episodes {
			means[i] = advantage.SampledMean(component[i], e.Mask)
			for t, v := range component[i] {
				varied = varied || e.Mask[t] && v != means[i]
				narrow[i] = append(narrow[i], float32(v))
			}
		}
		a.Means, tokens = append(a.Means, means), append(tokens, narrow)
	}
	last := len(all) - 1
	if a.Means, a.Total = a.Means[:last], a.Means[last]; varied {
		a.Tokens = tokens
	}
}

// negligible reports whether what the components do not explain is what rounding has left of the rewards.
func negligible(rest [][]float64, episodes []Rewarded) bool {
	largest := 1.0
	for _, e := range episodes {
		largest = max(largest, math.Abs(statistics.Sum(e.Rewards)))
	}
	unexplained := func(r float64) bool { return math.Abs(r) > 1e-9*largest }
	return !slices.ContainsFunc(slices.Concat(rest...), unexplained)
}
