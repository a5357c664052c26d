package components

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"gyre/internal/statistics"
	"gyre/orchestrate/advantage"
	"gyre/orchestrate/config"
)

// Gradients that are measured beside those of the parts.
const (
	Total   = "total"   // of the score that training uses
	Other   = "other"   // of what the score holds beside the weighted parts (exact mode)
	Entropy = "entropy" // of the entropy term, with its coefficient
	KL      = "kl"      // of the KL term, with its coefficient
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
}

// Advantages are those of every part, one per episode.
type Advantages struct {
	Names  []string // of the parts, other last
	Parts  [][]float64
	Total  []float64
	Linear bool   // the weighted parts' gradients add up to the total's
	Note   string // what was replaced, if anything
	// Weights that make the parts add up, aligned with Names: 1 in exact mode, whose advantages carry them.
	Weights []float64
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

// Estimate gives every part of every episode its advantage, by the run's estimator or, where that does not compare whole episodes (it
// would need a critic of every part), by grpo. A sample without a part has earned 0 of it.
//
// In independent mode a part has the advantages that it would have as the only reward. In exact mode it has its share of the total's:
// with grpo w·(r − mean)/(std of the total + 1e-6). What the score holds beside the weighted parts is then a part of its own.
func Estimate(samples []Sample, c config.Components, weights map[string]float64, a config.Algorithm) (Advantages, error) {
	names := c.Names
	if len(names) == 0 {
		names = Occurring(samples)
	}
	if len(names) == 0 {
		return Advantages{}, fmt.Errorf("no episode has components: the rewards of [[rewards]], an environment that names parts, or a file with " +
			`"components" make some`)
	}
	occurring := Occurring(samples)
	for _, name := range names {
		if !slices.Contains(occurring, name) {
			return Advantages{}, fmt.Errorf("components.names lists %q, but the episodes have %v", name, occurring)
		}
	}
	out := Advantages{Names: slices.Clone(names)}
	switch a.Advantage {
	case "gae", "bi_level_gae", "reinforce_pp":
		out.Note = fmt.Sprintf("the parts' advantages are grpo's: %s gives every token its own", a.Advantage)
		a.Advantage = "grpo"
	}
	scores := column(samples, func(s Sample) float64 { return s.Score })
	var columns [][]float64
	rest := slices.Clone(scores)
	for _, name := range names {
		part := column(samples, func(s Sample) float64 { return s.Parts[name] })
		weight, given := weights[name]
		if !given {
			weight = 1
		}
		for i, v := range part {
			rest[i] -= weight * v
		}
		columns, out.Weights = append(columns, part), append(out.Weights, weight)
	}
	complete := negligible(rest, scores)
	e := estimator{samples: samples, name: a.Advantage, standardised: a.Advantage != "rloo" && (a.NormByStd || a.Advantage == "reinforce_pp_baseline")}
	var err error
	if out.Total, err = e.alone(scores, a); err != nil {
		return Advantages{}, err
	}
	if c.Mode != Exact {
		out.Linear = complete && !e.standardised
		for _, part := range columns {
			alone, err := e.alone(part, a)
			if err != nil {
				return Advantages{}, err
			}
			out.Parts = append(out.Parts, alone)
		}
		return out, nil
	}
	if !complete {
		out.Names, columns, out.Weights = append(out.Names, Other), append(columns, rest), append(out.Weights, 1)
	}
	out.Linear = true
	for k, part := range columns {
		weighted := make([]float64, len(part))
		for i, v := range part {
			weighted[i] = out.Weights[k] * v
		}
		share, err := e.share(weighted, scores, a)
		if err != nil {
			return Advantages{}, err
		}
		out.Parts = append(out.Parts, share)
		out.Weights[k] = 1
	}
	return out, nil
}

func column(samples []Sample, of func(Sample) float64) []float64 {
	out := make([]float64, len(samples))
	for i, s := range samples {
		out[i] = of(s)
	}
	return out
}

// negligible tells what rounding left of scores from what their parts do not explain.
func negligible(rest, scores []float64) bool {
	largest := 1.0
	for _, s := range scores {
		largest = max(largest, math.Abs(s))
	}
	for _, r := range rest {
		if math.Abs(r) > 1e-9*largest {
			return false
		}
	}
	return true
}

// estimator applies one that gives all tokens of an episode the same advantage.
type estimator struct {
	samples      []Sample
	name         string
	standardised bool
}

// alone gives one reward per episode its advantages.
func (e estimator) alone(rewards []float64, a config.Algorithm) ([]float64, error) {
	trajectories := make([]advantage.Trajectory, len(rewards))
	for i, s := range e.samples {
		trajectories[i] = advantage.Trajectory{Group: s.Group, Mask: slices.Repeat([]bool{true}, s.Tokens), Rewards: make([]float64, s.Tokens)}
		trajectories[i].Rewards[s.Tokens-1] = rewards[i]
	}
	estimate, err := advantage.Compute(trajectories, config.Algorithm{Advantage: e.name, NormByStd: a.NormByStd}, 1)
	if err != nil {
		return nil, err
	}
	out := make([]float64, len(rewards))
	for i, all := range estimate.Advantages {
		out[i] = all[0]
	}
	return out, nil
}

// share gives one reward per episode its share of the advantages of all: what is linear in the reward, on the scale of the total.
func (e estimator) share(rewards, total []float64, a config.Algorithm) ([]float64, error) {
	a.NormByStd = false
	whitened := e.name == "reinforce_pp_baseline"
	if whitened {
		e.name = "grpo"
	}
	out, err := e.alone(rewards, a)
	if err != nil || !e.standardised {
		return out, err
	}
	if whitened {
		centred, err := e.alone(total, a)
		if err != nil {
			return nil, err
		}
		mean, _ := e.overTokens(out)
		_, scale := e.overTokens(centred)
		for i := range out {
			out[i] = (out[i] - mean) * scale
		}
		return out, nil
	}
	members := map[int][]float64{}
	for i, s := range e.samples {
		members[e.group(s)] = append(members[e.group(s)], total[i])
	}
	for i, s := range e.samples {
		std := 1.0
		if group := members[e.group(s)]; len(group) > 1 {
			std = statistics.Deviation(group)
		}
		out[i] /= std + 1e-6
	}
	return out, nil
}

func (e estimator) group(s Sample) int {
	if e.name == "brpo" {
		return 0
	}
	return s.Group
}

// overTokens are the mean of what whitening sees, every sampled token once, and the factor that makes its variance 1.
func (e estimator) overTokens(values []float64) (mean, scale float64) {
	n, squares := 0.0, 0.0
	for i, s := range e.samples {
		n += float64(s.Tokens)
		mean += float64(s.Tokens) * values[i]
	}
	mean /= n
	for i, s := range e.samples {
		d := values[i] - mean
		squares += float64(s.Tokens) * d * d
	}
	if n < 2 {
		return mean, 1
	}
	return mean, 1 / math.Sqrt(squares/(n-1)+1e-8)
}
