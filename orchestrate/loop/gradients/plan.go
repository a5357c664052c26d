package gradients

import (
	"fmt"

	"gyre/orchestrate/config"
)

// Profiles of MeasureBuckets.
const (
	Exact = "exact"
	Paper = "paper"
)

// Options are the keys of [analysis], which choose what is measured of buckets and how, and what the paper profile
// repeats of the update: the rows of a mini-batch over all ranks, and how token losses are joined, with the width that
// seq-mean-token-sum-norm divides by.
type Options struct {
	config.Analysis
	MiniBatch   int
	Aggregation string
	Width       int
}

// describe says by which procedure the numbers were made.
func (o Options) describe() string {
	if o.Profile == Paper {
		return fmt.Sprintf("paper profile: mean norm of mini-batches of %d, micro-batches of %d, ranks %d",
			o.MiniBatch, o.PaperMicroBatch, o.PaperRanks)
	}
	if !o.Statistics {
		return "exact profile"
	}
	return fmt.Sprintf("exact profile, %g%% intervals", 100*o.Confidence)
}

// atOnce is how many of the loss terms are measured at once.
func (o Options) atOnce(terms int) int {
	if o.LowMemory {
		return 1
	}
	return terms
}

// Passes is how often the batch goes forward for so many loss terms.
func (o Options) Passes(terms int) int {
	passes := terms / o.atOnce(terms)
	if o.Profile == Paper {
		passes *= 2 // the buckets, and all of them again
	}
	return passes
}

// Plan is what a measurement of buckets will hold in memory, besides a micro-batch's activations.
type Plan struct {
	Buffers int   // buffers of the size of the model, all loss terms together
	Bytes   int64 // of the buffers and sketches
	Keep    bool  // every group's gradient is kept: inner products are exact
	Passes  int   // forward passes over the batch
}

// NewPlan plans for a model's parameter count and the loss terms, groups and buckets of a batch.
func NewPlan(parameters int64, terms, groups, buckets int, o Options) Plan {
	p := Plan{Passes: o.Passes(terms)}
	switch {
	case o.Profile == Paper:
		p.Buffers = o.atOnce(terms)
	case !o.Statistics:
		p.Buffers = 2 * o.atOnce(terms)
	default:
		p.Buffers = (groups + buckets + 1) * terms
		if p.Keep = !o.LowMemory && int64(p.Buffers)*4*parameters <= int64(o.MemoryMiB)<<20; !p.Keep {
			p.Buffers, p.Bytes = 3*o.atOnce(terms), int64(groups*terms)*4*bucketSketch
		}
	}
	p.Bytes += int64(p.Buffers) * 4 * parameters
	return p
}

func (p Plan) String() string {
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
