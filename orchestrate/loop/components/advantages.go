package components

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/advantage"
)

// Gradients that are measured beside those of the parts.
const (
	Total   = "total"   // of the score that training uses
	Other   = "other"   // of what the score holds beside the weighted parts (exact mode)
	Entropy = "entropy" // of the entropy term, with its coefficient
	KL      = "kl"      // of the KL term, with its coefficient
	// Baseline is of what the critic expected (exact mode of gae and bi_level_gae).
	Baseline = "baseline"
)

// Modes of sharing advantages out.
const (
	Independent = "independent"
	Exact       = "exact"
)

// Sample is what an episode's advantages are made of.
type Sample struct {
	Group  int
	Tokens int                // sampled
	Score  float64            // the number that training uses
	Parts  map[string]float64 // the parts of the reward, unweighted, each summed over the tokens
	// Path is needed by estimators that give every token its own advantage; without one, rewards lie on the last of Tokens sampled ones.
	Path *Path
}

// Path is an episode token by token.
type Path struct {
	Mask     []bool // sampled
	Rewards  []float64
	Parts    map[string][]float64 // unweighted
	Values   []float64            // of the critic; nil without one
	TurnEnds []int                // the last sampled token of every turn
}

// Advantages are those of every part, one per episode.
type Advantages struct {
	Names  []string // of the parts, other and baseline last
	Parts  [][]float64
	Total  []float64
	Linear bool // the weighted parts' gradients add up to the total's
	// Weights that make the parts add up, aligned with Names: 1 in exact mode, whose advantages carry them.
	Weights []float64
	// Tokens are the advantages of single tokens by part (the total last), episode and token, where they differ within an episode. Parts and
	// Total are then their means.
	Tokens [][][]float32
}

// Occurring lists the parts that any sample has, in alphabetical order.
func Occurring(samples []Sample) []string {
	names := map[string]bool{}
	for _, s := range samples {
		for name := range s.Parts {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Estimate gives every part of every episode its advantage, by the run's estimator. A sample without a part has earned 0 of it.
//
// In independent mode a part has the advantages that it would have as the only reward, before a critic knew anything of it. In exact mode it
// has its share of the total's: with grpo w·(r − mean)/(std of the total + 1e-6). What the score holds beside the weighted parts is then a part
// of its own, and so is what the critic expected.
func Estimate(samples []Sample, c config.Components, weights map[string]float64, a config.Algorithm) (Advantages, error) {
	names, err := chosen(samples, c.Names)
	if err != nil {
		return Advantages{}, err
	}
	trajectories, parts := trajectories(samples, names)
	out := Advantages{Names: slices.Clone(names)}
	rest := make([][]float64, len(samples))
	for i, t := range trajectories {
		rest[i] = slices.Clone(t.Rewards)
	}
	for k, name := range names {
		weight, given := weights[name]
		if !given {
			weight = 1
		}
		for i, rewards := range parts[k] {
			for t, v := range rewards {
				rest[i][t] -= weight * v
			}
		}
		out.Weights = append(out.Weights, weight)
	}
	complete := negligible(rest, samples)
	estimator := config.Algorithm{Advantage: a.Advantage, NormByStd: a.NormByStd, Gamma: a.Gamma, Lambda: a.Lambda, HighLevelGamma: a.HighLevelGamma}
	total, err := advantage.Compute(trajectories, estimator, 1)
	if err != nil {
		return Advantages{}, err
	}
	var shares [][][]float64
	if c.Mode == Exact {
		shares, err = out.share(trajectories, parts, rest, complete, estimator)
		out.Linear = true
	} else {
		shares, err = alone(trajectories, parts, estimator)
		plain := a.Advantage == "rloo" || !a.NormByStd && (a.Advantage == "grpo" || a.Advantage == "brpo")
		out.Linear = complete && plain
	}
	if err != nil {
		return Advantages{}, err
	}
	out.collect(trajectories, append(shares, total.Advantages))
	return out, nil
}

// chosen are the parts to measure: those that are named, or all.
func chosen(samples []Sample, names []string) ([]string, error) {
	occurring := Occurring(samples)
	if len(names) == 0 {
		names = occurring
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no episode has components: the rewards of [[rewards]], an environment that names parts, or a file with " +
			`"components" make some`)
	}
	for _, name := range names {
		if !slices.Contains(occurring, name) {
			return nil, fmt.Errorf("components.names lists %q, but the episodes have %v", name, occurring)
		}
	}
	return names, nil
}

// trajectories are the samples as estimators read them, and the token rewards of every part of theirs.
func trajectories(samples []Sample, names []string) (list []advantage.Trajectory, parts [][][]float64) {
	parts = make([][][]float64, len(names))
	for _, s := range samples {
		p := s.Path
		if p == nil {
			p = &Path{Mask: slices.Repeat([]bool{true}, s.Tokens), Rewards: make([]float64, s.Tokens)}
			p.Rewards[s.Tokens-1] = s.Score
		}
		list = append(list, advantage.Trajectory{Group: s.Group, Mask: p.Mask, Rewards: p.Rewards, Values: p.Values, TurnEnds: p.TurnEnds})
		for k, name := range names {
			rewards := p.Parts[name]
			if rewards == nil {
				rewards = make([]float64, len(p.Mask))
			}
			if s.Path == nil {
				rewards[s.Tokens-1] = s.Parts[name]
			}
			parts[k] = append(parts[k], rewards)
		}
	}
	return list, parts
}

// share splits the total's advantages among the weighted parts, what is left of the score, and the critic's baseline.
func (a *Advantages) share(episodes []advantage.Trajectory, parts [][][]float64, rest [][]float64, complete bool, c config.Algorithm) ([][][]float64, error) {
	weighted := make([][][]float64, len(parts))
	for k, episodes := range parts {
		for _, rewards := range episodes {
			own := make([]float64, len(rewards))
			for t, v := range rewards {
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

// alone are the advantages of every part as if it were the only reward.
func alone(episodes []advantage.Trajectory, parts [][][]float64, c config.Algorithm) ([][][]float64, error) {
	var out [][][]float64
	for _, rewards := range parts {
		own := slices.Clone(episodes)
		for i := range own {
			own[i].Rewards = rewards[i]
			if c.UsesCritic() {
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
	for _, part := range all {
		row := make([]float64, len(episodes))
		for i, e := range episodes {
			row[i] = advantage.SampledMean(part[i], e.Mask)
			for t, v := range part[i] {
				varied = varied || e.Mask[t] && v != row[i]
			}
		}
		means = append(means, row)
	}
	last := len(all) - 1
	a.Parts, a.Total = means[:last], means[last]
	if !varied {
		return
	}
	for _, part := range all {
		var narrow [][]float32
		for _, values := range part {
			own := make([]float32, len(values))
			for t, v := range values {
				own[t] = float32(v)
			}
			narrow = append(narrow, own)
		}
		a.Tokens = append(a.Tokens, narrow)
	}
}

// negligible tells what rounding left of rewards from what the parts do not explain.
func negligible(rest [][]float64, samples []Sample) bool {
	largest := 1.0
	for _, s := range samples {
		largest = max(largest, math.Abs(s.Score))
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
