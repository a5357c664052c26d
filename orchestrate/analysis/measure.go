package analysis

import (
	"context"
	"math"

	"gyre/torch"
)

// Batch is what Measure needs to know of the episodes it analyses.
type Batch struct {
	Tokens  []int // sampled tokens per episode
	Entropy bool  // the loss has an entropy term
	KL      bool  // the loss has a KL term
	// Backward runs the chosen episodes forward and backward, adding each component's gradient to its buffer, and returns the sums of
	// their losses. All losses are weighted under the normaliser of the whole batch.
	Backward func(samples []int, out torch.Components) (torch.PolicyStats, error)
}

// Component names, in the order of reports.
const (
	Task    = "task"
	Entropy = "entropy"
	KL      = "kl"
)

// Result is one bucket's (or the whole batch's) part of the gradient.
type Result struct {
	Bucket
	Samples, Tokens int
	Fraction        float64            // of all episodes
	Norms           map[string]float64 // L2 norm of each component's gradient, before any clipping
	Losses          map[string]float64 // policy, entropy, kl, total
}

// Report holds the buckets in order, and last the whole batch under the name "all".
type Report struct{ Results []Result }

// Measure computes the component gradients of every bucket and of all of them together. It allocates two gradient buffers per
// component (the bucket's and the sum's) and changes nothing else.
func Measure(ctx context.Context, model *torch.Model, buckets []Bucket, b Batch) (Report, error) {
	components := []string{Task}
	if b.Entropy {
		components = append(components, Entropy)
	}
	if b.KL {
		components = append(components, KL)
	}
	part, err := newBuffers(model, components)
	if err != nil {
		return Report{}, err
	}
	defer part.close()
	sum, err := newBuffers(model, components)
	if err != nil {
		return Report{}, err
	}
	defer sum.close()

	episodes := 0
	for _, bucket := range buckets {
		for _, g := range bucket.Groups {
			episodes += len(g.Samples)
		}
	}
	var report Report
	whole := Result{Bucket: Bucket{Name: "all"}, Losses: map[string]float64{}}
	for _, bucket := range buckets {
		if ctx.Err() != nil {
			return Report{}, context.Cause(ctx)
		}
		if err := part.zero(); err != nil {
			return Report{}, err
		}
		samples := bucket.Samples()
		stats, err := b.Backward(samples, part.components())
		if err != nil {
			return Report{}, err
		}
		r := Result{Bucket: bucket, Samples: len(samples), Fraction: float64(len(samples)) / float64(episodes), Losses: losses(stats, b)}
		for _, i := range samples {
			r.Tokens += b.Tokens[i]
		}
		if r.Norms, err = part.norms(); err != nil {
			return Report{}, err
		}
		if err := sum.add(part); err != nil {
			return Report{}, err
		}
		for name, v := range r.Losses {
			whole.Losses[name] += v
		}
		whole.Groups = append(whole.Groups, bucket.Groups...)
		whole.Samples += r.Samples
		whole.Tokens += r.Tokens
		whole.Fraction += r.Fraction
		report.Results = append(report.Results, r)
	}
	if whole.Norms, err = sum.norms(); err != nil {
		return Report{}, err
	}
	report.Results = append(report.Results, whole)
	return report, nil
}

// losses of a bucket: its share of the batch's loss. Components that are switched off are absent.
func losses(s torch.PolicyStats, b Batch) map[string]float64 {
	out := map[string]float64{"policy": s.PolicyLoss, "total": s.PolicyLoss}
	if b.Entropy {
		out["entropy"] = s.EntropyLoss
		out["total"] += s.EntropyLoss
	}
	if b.KL {
		out["kl"] = s.KLLoss
		out["total"] += s.KLLoss
	}
	return out
}

// buffers is one gradient buffer per component.
type buffers map[string]*torch.Gradients

func newBuffers(model *torch.Model, components []string) (buffers, error) {
	b := buffers{}
	for _, name := range components {
		g, err := torch.NewGradients(model)
		if err != nil {
			b.close()
			return nil, err
		}
		b[name] = g
	}
	return b, nil
}

func (b buffers) components() torch.Components {
	return torch.Components{Task: b[Task], Entropy: b[Entropy], KL: b[KL]}
}

func (b buffers) zero() error {
	for _, g := range b {
		if err := g.Zero(); err != nil {
			return err
		}
	}
	return nil
}

func (b buffers) add(other buffers) error {
	for name, g := range b {
		if err := g.Add(other[name], 1); err != nil {
			return err
		}
	}
	return nil
}

func (b buffers) norms() (map[string]float64, error) {
	out := map[string]float64{}
	for name, g := range b {
		square, _, err := g.Dot(g)
		if err != nil {
			return nil, err
		}
		out[name] = math.Sqrt(square)
	}
	return out, nil
}

func (b buffers) close() {
	for _, g := range b {
		g.Close()
	}
}
