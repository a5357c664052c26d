package gradients

import (
	"maps"
	"math"
	"slices"

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
			names[name] = !slices.Contains([]string{Total, Other, Entropy, KL, Baseline}, name)
		}
	}
	maps.DeleteFunc(names, func(_ string, free bool) bool { return !free })
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
func Estimate(episodes []Rewarded, c config.Components, weights map[string]float64,
	a config.Algorithm) (Advantages, error) {
	names := Occurring(episodes)
	if len(c.Names) > 0 {
		occurring := names
		lacks := func(name string) bool { return !slices.Contains(occurring, name) }
		names = slices.DeleteFunc(slices.Clone(c.Names), lacks)
	}
	out := Advantages{Names: slices.Clone(names)}
	if len(names) == 0 {
		return out, nil
	}
	trajectories, rest := make([]advantage.Trajectory, len(episodes)), make([][]float64, len(episodes))
	for i, e := range episodes {
		trajectories[i], rest[i] = e.Trajectory, slices.Clone(e.Rewards)
	}
	var rewards [][][]float64
	for _, name := range names {
		weight, given := weights[name]
		if !given {
			weight = 1
		}
		out.Weights, rewards = append(out.Weights, weight), append(rewards, rewardsOf(episodes, name))
		for i, own := range rewards[len(rewards)-1] {
			for t, v := range own {
				rest[i][t] -= weight * v
			}
		}
	}
	complete := negligible(rest, episodes)
	estimator := a.Estimation()
	estimator.SoftReweight, estimator.LengthWeight, estimator.ZeroTaskAdvantage = false, false, false
	total, err := advantage.Compute(trajectories, estimator, 1)
	if err != nil {
		return Advantages{}, err
	}
	var shares [][][]float64
	if c.Mode == exactMode {
		shares, err = out.share(trajectories, rewards, rest, complete, estimator)
		out.Linear = true
	} else {
		shares, err = alone(trajectories, rewards, estimator)
		e := advantage.Find(a.Advantage)
		out.Linear = complete && !e.Whitens && !e.Critic && (e.Divisor == nil || !a.NormByStd)
	}
	if err != nil {
		return Advantages{}, err
	}
	out.collect(trajectories, append(shares, total.Advantages))
	return out, nil
}

// rewardsOf are the token rewards of one component, by episode.
func rewardsOf(episodes []Rewarded, name string) [][]float64 {
	out := make([][]float64, len(episodes))
	for i, e := range episodes {
		if out[i] = e.Components[name]; out[i] == nil {
			out[i] = make([]float64, len(e.Mask))
		}
	}
	return out
}

// share splits the total's advantages among the weighted components, what is left of the score, and the critic's
// baseline.
func (a *Advantages) share(episodes []advantage.Trajectory, rewards [][][]float64, rest [][]float64, complete bool,
	c advantage.Options) ([][][]float64, error) {
	weighted := make([][][]float64, len(rewards))
	for k, byEpisode := range rewards {
		for _, values := range byEpisode {
			own := make([]float64, len(values))
			for t, v := range values {
				own[t] = a.Weights[k] * v
			}
			weighted[k] = append(weighted[k], own)
		}
	}
	if !complete {
		a.Names, weighted = append(a.Names, Other), append(weighted, rest)
	}
	shares, baseline, err := advantage.Share(episodes, weighted, c)
	if baseline != nil {
		a.Names, shares = append(a.Names, Baseline), append(shares, baseline)
	}
	a.Weights = slices.Repeat([]float64{1}, len(a.Names))
	return shares, err
}

// alone are the advantages of every component as if it were the only reward.
func alone(episodes []advantage.Trajectory, rewards [][][]float64, c advantage.Options) ([][][]float64, error) {
	var out [][][]float64
	for _, byEpisode := range rewards {
		own := slices.Clone(episodes)
		for i := range own {
			own[i].Rewards = byEpisode[i]
			if advantage.Find(c.Advantage).Critic {
				own[i].Values = make([]float64, len(own[i].Mask))
			}
		}
		estimate, err := advantage.Compute(own, c, 1)
		if err != nil {
			return nil, err
		}
		out = append(out, estimate.Advantages)
	}
	return out, nil
}

// collect keeps the means of every episode, and the tokens' own advantages where they say more.
func (a *Advantages) collect(episodes []advantage.Trajectory, all [][][]float64) {
	var means [][]float64
	varied := false
	for _, component := range all {
		row := make([]float64, len(episodes))
		for i, e := range episodes {
			row[i] = advantage.SampledMean(component[i], e.Mask)
			for t, v := range component[i] {
				varied = varied || e.Mask[t] && v != row[i]
			}
		}
		means = append(means, row)
	}
	last := len(all) - 1
	a.Means, a.Total = means[:last], means[last]
	if !varied {
		return
	}
	for _, component := range all {
		var narrow [][]float32
		for _, values := range component {
			own := make([]float32, len(values))
			for t, v := range values {
				own[t] = float32(v)
			}
			narrow = append(narrow, own)
		}
		a.Tokens = append(a.Tokens, narrow)
	}
}

// negligible tells what rounding left of rewards from what the components do not explain.
func negligible(rest [][]float64, episodes []Rewarded) bool {
	largest := 1.0
	for _, e := range episodes {
		score := 0.0
		for _, r := range e.Rewards {
			score += r
		}
		largest = max(largest, math.Abs(score))
	}
	for _, rewards := range rest {
		for _, r := range rewards {
			if math.Abs(r) > 1e-9*largest {
				return false
			}
		}
	}
	return true
}
