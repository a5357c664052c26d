package analysis

import "fmt"

// Profiles of Measure.
const (
	Exact = "exact"
	Paper = "paper"
)

// Options choose what is measured and how.
type Options struct {
	Profile string // Exact or Paper
	// Statistics adds group norms, signal estimates with intervals, and cosines between buckets (exact profile).
	Statistics bool
	// Confidence of the intervals, between 0 and 1.
	Confidence float64
	// LowMemory measures one component after the other: a third of the buffers, and a forward pass for each component.
	LowMemory bool
	// KeepBytes bounds what may be spent on keeping every group's gradient. Where they do not fit, inner products between groups are taken
	// from sketches.
	KeepBytes int64
	// Of the paper profile: rows per mini-batch over all ranks, rows per micro-batch of one rank, and ranks.
	MiniBatch, MicroBatch, Ranks int
}

// Plan is what an analysis will hold in memory, besides a micro-batch's activations.
type Plan struct {
	Buffers int   // buffers of the size of the model, all components together
	Bytes   int64 // of the buffers and sketches
	Keep    bool  // every group's gradient is kept: inner products are exact
	Passes  int   // forward passes over the batch
}

// NewPlan plans for a model's parameter count and the components, groups and buckets of a batch.
func NewPlan(parameters int64, components, groups, buckets int, o Options) Plan {
	together, p := components, Plan{Passes: 1}
	if o.LowMemory {
		together, p.Passes = 1, components
	}
	switch {
	case o.Profile == Paper:
		p.Buffers = together
		p.Passes *= 2 // the buckets, and all of them again
	case !o.Statistics:
		p.Buffers = 2 * together
	default:
		p.Buffers = (groups + buckets + 1) * components
		p.Bytes = int64(p.Buffers) * 4 * parameters
		if p.Keep = !o.LowMemory && p.Bytes <= o.KeepBytes; p.Keep {
			return p
		}
		p.Buffers = 3 * together
		p.Bytes = int64(p.Buffers)*4*parameters + int64(groups*components)*4*sketchDimension
		return p
	}
	p.Bytes = int64(p.Buffers) * 4 * parameters
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
