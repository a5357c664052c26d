package analysis

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"

	"gyre/internal/statistics"
	"gyre/torch"
)

// Batch is what Measure needs to know of the episodes it analyses.
type Batch struct {
	Tokens []int // sampled tokens per episode
	// Components of the loss, in the order of reports: names and terms. Any number of them, by any names.
	Components []torch.Term
	// Backward runs the chosen episodes forward and backward, adding each component's gradient to its buffer, and returns the sums of
	// their losses. All losses are weighted under the normaliser of the whole batch.
	Backward func(samples []int, out []torch.Term) (torch.PolicyStats, error)
	// Alone does the same for one micro-batch under its own normaliser, its gradients multiplied by scale (paper profile). The
	// losses it returns are not scaled.
	Alone func(samples []int, scale float64, out []torch.Term) (torch.PolicyStats, error)
}

func (b Batch) names() []string {
	out := make([]string, len(b.Components))
	for i, c := range b.Components {
		out[i] = c.Name
	}
	return out
}

// losses by component, and in total; the task's is called policy, as RAGEN does.
func (b Batch) losses(s torch.PolicyStats) map[string]float64 {
	out := map[string]float64{}
	for _, c := range b.Components {
		loss, name := s.Terms[c.Name].Loss, c.Name
		out["total"] += loss
		if name == torch.Task {
			name = "policy"
		}
		out[name] = loss
	}
	return out
}

// Measure computes the component gradients of every bucket and of all of them together. It changes nothing: gradients go into buffers of
// its own, of which report.Plan tells how many.
func Measure(ctx context.Context, model *torch.Model, buckets []Bucket, b Batch, o Options) (Report, error) {
	if len(buckets) == 0 {
		return Report{}, errors.New("there is no group to analyse")
	}
	named, err := model.Parameters()
	if err != nil {
		return Report{}, err
	}
	defer torch.CloseParameters(named)
	m := &measurement{ctx: ctx, model: model, batch: b, options: o, components: b.names()}
	parameters := int64(0)
	for _, p := range named {
		m.names = append(m.names, p.Name)
		shape, err := p.Tensor.Shape()
		if err != nil {
			return Report{}, err
		}
		n := int64(1)
		for _, size := range shape {
			n *= size
		}
		parameters += n
	}
	groups := 0
	whole := Bucket{Name: "all"}
	for _, bucket := range buckets {
		groups += len(bucket.Groups)
		whole.Groups = append(whole.Groups, bucket.Groups...)
	}
	m.plan = NewPlan(parameters, len(m.components), groups, len(buckets), o)
	m.results = make([]Result, len(buckets)+1)
	for i, bucket := range append(slices.Clone(buckets), whole) {
		m.results[i] = m.describe(bucket)
	}
	together := [][]string{m.components}
	if o.LowMemory {
		together = nil
		for _, c := range m.components {
			together = append(together, []string{c})
		}
	}
	pass := m.exact
	if o.Profile == Paper {
		pass = m.paper
	}
	return m.report(together, pass)
}

// measurement is an analysis on its way.
type measurement struct {
	ctx        context.Context
	model      *torch.Model
	batch      Batch
	options    Options
	components []string
	plan       Plan
	names      []string // of the parameters
	results    []Result // per bucket, and last of all of them
}

// describe counts a bucket's episodes and prepares its result.
func (m *measurement) describe(bucket Bucket) Result {
	r := Result{Bucket: bucket, Norms: map[string]float64{}, Losses: map[string]float64{}, Signals: map[string]Signal{},
		Cosines: map[string]float64{}, Whole: map[string]float64{}, Low: math.Inf(1), High: math.Inf(-1)}
	for _, g := range bucket.Groups {
		r.Samples += len(g.Samples)
		r.Low, r.High = math.Min(r.Low, g.Spread), math.Max(r.High, g.Spread)
		for _, i := range g.Samples {
			r.Tokens += m.batch.Tokens[i]
		}
	}
	r.Fraction = float64(r.Samples) / float64(len(m.batch.Tokens))
	return r
}

// report runs the passes, one for each set of components, and compares what they have kept.
func (m *measurement) report(together [][]string, run func([]string, *pool, *kept) error) (Report, error) {
	k := newKept(len(m.results))
	for _, components := range together {
		p := &pool{model: m.model, components: components}
		defer p.close()
		if err := run(components, p, k); err != nil {
			return Report{}, err
		}
		if !m.plan.Keep {
			p.close()
			p.all = nil
		}
	}
	report := Report{Options: m.options, Plan: m.plan, Components: m.components, Results: m.results}
	if m.options.Profile != Paper && m.options.Statistics {
		pairs, err := m.compare(k)
		if err != nil {
			return Report{}, err
		}
		report.Pairs = pairs
	}
	return report, nil
}

// Layer names the part of the model that a parameter belongs to: embed_tokens, layers.0 …, norm, lm_head.
func Layer(parameter string) string {
	parts := strings.Split(strings.TrimPrefix(parameter, "model."), ".")
	if parts[0] == "layers" && len(parts) > 1 {
		return "layers." + parts[1]
	}
	return parts[0]
}

// settle records the norms, the per-block norms and, between the components at hand, the cosines of a finished gradient.
func (m *measurement) settle(r *Result, gradient buffers, components []string) error {
	list := make([]*torch.Gradients, len(components))
	for i, name := range components {
		list[i] = gradient[name]
	}
	products, err := torch.Products(list)
	if err != nil {
		return err
	}
	for i, name := range components {
		own := products[pair(i, i, len(list))]
		square := total(own)
		if err := finite(name, square); err != nil {
			return err
		}
		r.Norms[name] = math.Sqrt(square)
		m.addBlocks(r, name, own)
	}
	for i, name := range components {
		for j := i + 1; j < len(components); j++ {
			other := components[j]
			product := total(products[pair(i, j, len(list))])
			if c, ok := statistics.Cosine(product, r.Norms[name]*r.Norms[name], r.Norms[other]*r.Norms[other]); ok {
				r.Cosines[name+"_"+other] = c
			}
		}
	}
	return nil
}

// pair is the place of (i, j), i <= j, in the upper triangle of n rows.
func pair(i, j, n int) int { return i*n - i*(i-1)/2 + j - i }

func total(perParameter []float64) float64 {
	sum := 0.0
	for _, v := range perParameter {
		sum += v
	}
	return sum
}

func (m *measurement) addBlocks(r *Result, component string, squares []float64) {
	sums := map[string]float64{}
	for i, name := range m.names {
		sums[Layer(name)] += squares[i]
	}
	if r.Blocks == nil {
		for _, name := range m.names {
			if b := Layer(name); !slices.ContainsFunc(r.Blocks, func(x Block) bool { return x.Name == b }) {
				r.Blocks = append(r.Blocks, Block{b, map[string]float64{}})
			}
		}
	}
	for _, b := range r.Blocks {
		b.Norms[component] = math.Sqrt(sums[b.Name])
	}
}
