package budget

import (
	"math"
	"slices"

	"gyre/internal/statistics"
)

// Planned is what was decided for a batch, and what is expected of it.
type Planned struct {
	Batch     int     `json:"batch"`
	Sizes     []int   `json:"sizes,omitempty"` // of its groups; none: those of the sources
	Mean      float64 `json:"mean"`            // expected noise
	Deviation float64 `json:"deviation"`
	Equal     float64 `json:"equal"` // expected noise with the sources' sizes
}

// Plan decides the sizes of a batch. Nothing is known of a source before its first batch: sizes are the sources' then,
// and nothing is expected.
func (s *State) Plan(batch int, places []Place, floor int) {
	next := Planned{Batch: batch}
	noise, beliefs, total := make([]float64, len(places)), make([]posterior, len(places)), 0
	for _, p := range places {
		total += p.Size
	}
	for g, p := range places {
		var known bool
		if beliefs[g], known = s.posterior(p); !known {
			s.Planned = append(s.Planned, next)
			return
		}
		noise[g] = beliefs[g].energy * beliefs[g].variance() * factor(p, 2, total)
	}
	next.Sizes = Allocate(noise, total, floor)
	variance := 0.0
	for g, p := range places {
		size := p.Size
		if next.Sizes != nil {
			size = next.Sizes[g]
		}
		mean, spread := beliefs[g].sampled(size)
		scale := beliefs[g].energy * factor(p, size, total)
		next.Mean, variance = next.Mean+scale*mean, variance+scale*scale*spread
		next.Equal += beliefs[g].energy * beliefs[g].variance() * factor(p, p.Size, total)
	}
	next.Deviation = math.Sqrt(variance)
	s.Planned = append(s.Planned, next)
}

// factor is what a group's variance of rewards is multiplied by in the variance of the batch's mean, when the group has
// n episodes, the batch total, and the group counts as its source plans.
func factor(p Place, n, total int) float64 {
	share := float64(p.Size) / float64(total)
	return share * share / float64(n-1)
}

// At is what is planned for a batch; the zero value where nothing is.
func (s *State) At(batch int) Planned {
	i := slices.IndexFunc(s.Planned, func(p Planned) bool { return p.Batch == batch })
	if i < 0 {
		return Planned{Batch: batch}
	}
	return s.Planned[i]
}

// Forget drops what was planned for a batch and those before it.
func (s *State) Forget(batch int) {
	s.Planned = slices.DeleteFunc(s.Planned, func(p Planned) bool { return p.Batch <= batch })
}

// Calibration compares predictions with what came, over the run.
type Calibration struct {
	Steps   int     `json:"steps"` // that were predicted
	Covered int     `json:"covered"`
	Error   float64 `json:"error"`  // Σ (realised − predicted)²
	Mean    float64 `json:"mean"`   // of what was realised
	Total   float64 `json:"total"`  // Σ (realised − mean)²
	Weight  float64 `json:"weight"` // of the steps in Scale, discounted
	Scale   float64 `json:"scale"`  // Σ of squared errors in deviations, discounted
	// What was realised and predicted, discounted: later predictions are corrected by their ratio.
	Realised  float64 `json:"realised"`
	Predicted float64 `json:"predicted"`
}

// Metrics are those of a step's budget. The noise is the variance of the advantage-weighted score: of the gradient by
// the logits of the sampled tokens, in the units of the loss.
type Metrics struct {
	Realised  *float64 `metric:"budget/realised" doc:"variance of the batch's advantage-weighted score, estimated from its rewards: Σ over groups of (share of the episodes planned)²·(variance of rewards)·(mean of Σ(1 − π)² over an episode's tokens)/(n − 1); stands for the gradient's, which is not measured (runs with sampling.budget = adaptive)"`
	Predicted *float64 `metric:"budget/predicted" doc:"the same as predicted before the batch was played"`
	Low       *float64 `metric:"budget/predicted_low" doc:"lower end of the prediction's 90 % interval, whose width follows from earlier errors"`
	High      *float64 `metric:"budget/predicted_high" doc:"upper end"`
	Equal     *float64 `metric:"budget/equal" doc:"the same as predicted for groups of their sources' sizes: above predicted"`
	Coverage  *float64 `metric:"budget/coverage" unit:"share" doc:"of the steps so far whose realised variance lay within the interval: near 0.9"`
	R2        *float64 `metric:"budget/r2" doc:"1 − Σ(realised − predicted)² / Σ(realised − mean)² over the steps so far, from the tenth on; below 0 the mean would have predicted better"`
	Smallest  int      `metric:"budget/group_size_min" unit:"episodes" doc:"in the smallest group"`
	Largest   int      `metric:"budget/group_size_max" unit:"episodes" doc:"in the largest"`
	Spread    float64  `metric:"budget/group_size_std" unit:"episodes" doc:"standard deviation of the groups' sizes"`
	Tasks     int      `metric:"budget/tasks" doc:"tasks that the run remembers: those of data sets"`
}

// quantile of the standard normal distribution that 5 % lie above.
const quantile = 1.6448536269514722

// enough steps for their mean to say something, which R² compares with.
const enough = 10

// trust is how many steps the predictions count as before they are corrected by what came: in mean and width.
const trust = 2

// Compare enters a batch that was played. It is called before [State.Learn].
func (s *State) Compare(p Planned, groups []Group, total int, memory float64) Metrics {
	var sizes []float64
	realised := 0.0
	for _, g := range groups {
		n := g.size()
		if sizes = append(sizes, float64(n)); n > 1 {
			realised += g.spread() * g.Energy * factor(g.Place, n, total)
		}
	}
	m := Metrics{Realised: &realised, Tasks: len(s.Tasks), Spread: statistics.PopulationDeviation(sizes)}
	if len(sizes) > 0 {
		m.Smallest, m.Largest = int(slices.Min(sizes)), int(slices.Max(sizes))
	}
	if p.Deviation == 0 || p.Mean == 0 {
		return m
	}
	c := &s.Calibration
	ratio := (c.Realised + trust*p.Mean) / (c.Predicted + trust*p.Mean)
	c.Realised, c.Predicted = c.Realised*memory+realised, c.Predicted*memory+p.Mean
	p.Mean, p.Deviation, p.Equal = p.Mean*ratio, p.Deviation*ratio, p.Equal*ratio
	wide := quantile * p.Deviation * math.Sqrt((trust+c.Scale)/(trust+c.Weight))
	m.Predicted, m.Equal, m.Low, m.High = &p.Mean, &p.Equal, new(max(p.Mean-wide, 0)), new(p.Mean+wide)
	c.enter(realised-p.Mean, realised, p.Deviation, memory)
	if *m.Low <= realised && realised <= *m.High {
		c.Covered++
	}
	m.Coverage = new(float64(c.Covered) / float64(c.Steps))
	if c.Total > 0 && c.Steps >= enough {
		m.R2 = new(1 - c.Error/c.Total)
	}
	return m
}

func (c *Calibration) enter(miss, realised, deviation, memory float64) {
	c.Steps++
	c.Error += miss * miss
	away := realised - c.Mean
	c.Mean += away / float64(c.Steps)
	c.Total += away * (realised - c.Mean)
	c.Weight, c.Scale = c.Weight*memory+1, c.Scale*memory+miss*miss/(deviation*deviation)
}
