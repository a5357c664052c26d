package trainer

import (
	"gyre/orchestrate/analysis"
	"gyre/orchestrate/config"
)

// analysisOptions are the configuration's choices in the analysis's terms.
func analysisOptions(c *config.Config) analysis.Options {
	a := c.Analysis
	return analysis.Options{
		Profile: a.Profile, Statistics: a.Statistics, Confidence: a.Confidence, LowMemory: a.LowMemory, KeepBytes: int64(a.MemoryMiB) << 20,
		MiniBatch: c.Actor.MiniBatch, MicroBatch: a.PaperMicroBatch, Ranks: a.PaperRanks,
	}
}

// analysisGroups is how many groups the analysis has if the filter keeps them all, analysisBuckets how many buckets those fill at most.
func analysisGroups(c *config.Config) int {
	groups := c.Analysis.Groups
	if groups == 0 {
		for _, e := range c.Envs {
			groups += e.Groups
		}
	}
	return groups
}

func analysisBuckets(c *config.Config) int {
	buckets := c.Analysis.NumBuckets
	if c.Analysis.Buckets == "fixed_rv" {
		buckets = 6
	}
	return min(buckets, analysisGroups(c))
}

// planAnalysis predicts the memory of a gradient analysis if the filter keeps every group, which is the most it can need.
func planAnalysis(c *config.Config, parameters int64) analysis.Plan {
	components := 1
	if c.Algorithm.EntropyCoef != 0 {
		components++
	}
	if c.Algorithm.KLCoef != 0 && c.Algorithm.KLIn == "loss" {
		components++
	}
	return analysis.NewPlan(parameters, components, analysisGroups(c), analysisBuckets(c), analysisOptions(c))
}
