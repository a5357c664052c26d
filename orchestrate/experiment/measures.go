package experiment

import (
	"cmp"
	"fmt"

	"gyre/orchestrate/config"
)

// Lengths of the sketches of gradients are primes, so that neither rows nor columns of a matrix fall on the same
// places. The error of an inner product is about 0.4 % of the product of the norms between groups, and 1 % between episodes.
const (
	BucketSketch  = 65521
	EpisodeSketch = 8191
)

// GradientPlan is what a measurement of buckets will hold in memory, besides a micro-batch's activations.
type GradientPlan struct {
	Buffers int   // buffers of the size of the model, all loss terms together
	Bytes   int64 // of the buffers and sketches
	Keep    bool  // every group's gradient is kept: inner products are exact
	Passes  int   // forward passes over the batch
}

// PlanBuckets plans an analysis for a model's parameter count and the loss terms, groups and buckets of a batch.
func PlanBuckets(a config.Analysis, parameters int64, terms, groups, buckets int) GradientPlan {
	p := GradientPlan{Passes: a.Passes(terms)}
	if a.Profile == "paper" {
		p.Buffers = a.AtOnce(terms)
	} else {
		p.Buffers = (groups + buckets + 1) * terms
		if p.Keep = !a.LowMemory && int64(p.Buffers)*4*parameters <= int64(a.MemoryMiB)<<20; !p.Keep {
			p.Buffers, p.Bytes = 3*a.AtOnce(terms), int64(groups*terms)*4*BucketSketch
		}
	}
	p.Bytes += int64(p.Buffers) * 4 * parameters
	return p
}

func (p GradientPlan) String() string {
	what := ""
	if p.Keep {
		what = ", every group's gradient kept"
	}
	passes := "one forward pass"
	if p.Passes > 1 {
		passes = fmt.Sprintf("%d forward passes", p.Passes)
	}
	return fmt.Sprintf("%d gradient buffers, %.1f MiB%s, %s", p.Buffers, float64(p.Bytes)/(1<<20), what, passes)
}

// ComponentBuffers is how many gradient buffers a measurement of components and of so many other loss terms holds.
func ComponentBuffers(components, terms int) int {
	return components + terms + 2 // and the total, and an episode's own
}

// ComponentBytes is what a measurement of so many parameters and episodes holds besides a forward pass.
func ComponentBytes(parameters int64, buffers, samples, permutations int) int64 {
	bytes := int64(buffers) * 4 * parameters
	if permutations > 0 {
		n, rounds := int64(samples), int64(permutations+1)/2
		bytes += 2*n*EpisodeSketch*4 + n*n*12 + n*rounds*8*int64(buffers)
	}
	return bytes
}

// planMeasures plans the gradients of analyses.
func (e *Experiment) planMeasures(p *MemoryPlan) {
	_, gradients, _ := e.divisors()
	c, n := e.Config, e.Policy.Trains.Count(e.Policy.Shape)/gradients
	if c.Analysis.Enabled {
		// If the filter keeps every group, which is the most that an analysis can need.
		plan := PlanBuckets(c.Analysis, n, len(Loss(c).Terms()), analysisGroups(c), analysisBuckets(c))
		p.add("update", "gradient analysis: "+plan.String(), plan.Bytes)
	}
	if c.Components.Enabled {
		what, bytes := planComponents(c, n)
		p.add("update", what, bytes)
	}
}

// planComponents predicts the memory of measuring the reward components of a step, if the filter keeps every episode.
// How many there are is known where they are named; otherwise three are counted.
func planComponents(c *config.Config, parameters int64) (what string, bytes int64) {
	k, n := c.Components, len(RewardComponents(c))
	if n == 0 {
		n = 3
	}
	if k.Mode == "exact" {
		n++ // what the score holds beside them
		if c.Algorithm.UsesCritic() {
			n++ // what the critic expected
		}
	}
	buffers := ComponentBuffers(n, len(Loss(c).Terms())-1)
	bytes = ComponentBytes(parameters, buffers, c.Episodes(), k.Permutations)
	if k.Save == "full" {
		bytes += int64(n) * 4 * parameters
	}
	return fmt.Sprintf("gradients of the reward components: %d buffers, %d components", buffers, n), bytes
}

// analysisGroups is how many groups the analysis has if the filter keeps them all, analysisBuckets how many buckets
// those fill at most.
func analysisGroups(c *config.Config) int { return cmp.Or(c.Analysis.Groups, config.GroupsOf(c.Envs)) }

func analysisBuckets(c *config.Config) int {
	buckets := c.Analysis.NumBuckets
	if c.Analysis.Buckets == "fixed_rv" {
		buckets = 6
	}
	return min(buckets, analysisGroups(c))
}
