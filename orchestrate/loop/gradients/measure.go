// Package gradients measures how the policy gradient is made up, without changing anything: gradients of the columns
// of a batch, taken of parts of it, and their norms, cosines, signal and noise, over the whole model and by layer and
// kind of parameter.
//
//	columns (loss terms, or reward components) × rows (groups, or episodes)
//	        │ backward passes into buffers, which are added up
//	        ▼
//	gram of inner products, parameter by parameter ──▶ norms, cosines, signal and noise, bands
//
// Two views of it are logged. [MeasureBuckets] takes the loss terms apart by buckets of groups whose rewards vary
// alike. [MeasureComponents] takes the task term apart by the components of the reward. Token losses are weighted
// under the normaliser of the whole batch, and gradients are linear, so that groups add up to buckets, buckets to the
// batch, and terms to the loss. The paper profile (paper.go) does neither: it repeats RAGEN's procedure, so that
// published plots can be compared.
package gradients

import (
	"context"
	"errors"
	"math"

	"gyre/internal/statistics"
	"gyre/orchestrate/loop/train"
	"gyre/torch"
)

// Subject is what is measured: a policy, a batch whose columns are filled and which is weighed as a whole, and the
// loss. Measuring changes none of them. Over ranks it is collective.
type Subject struct {
	Policy    *train.Learner
	Batch     *train.Batch
	Objective train.Objective
	Columns   []train.Column // of the loss; their buffers are the measurement's
}

// LossTerms are the columns of an objective: the terms that it has.
func LossTerms(o train.Objective) []train.Column {
	out := []train.Column{{Name: torch.Task, Kind: torch.TermTask}}
	if o.EntropyCoef != 0 {
		out = append(out, train.Column{Name: torch.Entropy, Kind: torch.TermEntropy})
	}
	if o.KL != torch.KLNone {
		out = append(out, train.Column{Name: torch.KL, Kind: torch.TermKL})
	}
	return out
}

// take is the subject of some rows, under the weights of the whole batch.
func (s Subject) take(rows []int) Subject {
	columns := make([]train.Column, len(s.Columns))
	for i, c := range s.Columns {
		c.Advantages, c.Weights = train.Rows(c.Advantages, rows), train.Rows(c.Weights, rows)
		columns[i] = c
	}
	s.Batch, s.Columns = s.Batch.Take(rows), columns
	return s
}

// backward adds the gradients of the columns to buffers.
func (s Subject) backward(ctx context.Context, into buffers) (train.Losses, error) {
	columns := make([]train.Column, len(s.Columns))
	for i, c := range s.Columns {
		c.Into = into[i]
		columns[i] = c
	}
	return s.Policy.Backward(ctx, s.Batch, s.Objective, columns)
}

// measurement is a measurement of buckets on its way.
type measurement struct {
	ctx        context.Context
	model      *torch.Model
	options    Options
	plan       Plan
	parameters []parameter
	layers     []scope
	results    []*Result // of the buckets, and last of all of them
	all, free  buffers   // that were ever made, and those of them in which nothing lies any more
}

// MeasureBuckets takes the gradients of the columns for every bucket and for all of them together.
func MeasureBuckets(ctx context.Context, s Subject, buckets []Bucket, o Options) (*Report, error) {
	if len(buckets) == 0 {
		return nil, errors.New("there is no group to analyse")
	}
	named, err := s.Policy.Model.Parameters()
	if err != nil {
		return nil, err
	}
	defer torch.CloseParameters(named)
	m := &measurement{ctx: ctx, model: s.Policy.Model, options: o}
	defer func() { m.all.close() }()
	var size int64
	if m.parameters, size, err = parametersOf(named); err != nil {
		return nil, err
	}
	whole := Bucket{Name: "all"}
	for _, bucket := range buckets {
		whole.Groups = append(whole.Groups, bucket.Groups...)
		m.results = append(m.results, newResult(bucket, s.Batch))
	}
	m.results = append(m.results, newResult(whole, s.Batch))
	m.plan = NewPlan(size, len(s.Columns), len(whole.Groups), len(buckets), o)
	report := &Report{Options: o, Plan: m.plan}
	pass, atOnce := m.paper, len(s.Columns)
	if o.Profile != Paper {
		pass, m.layers = m.exact, layers(m.parameters)
		report.layers = m.layers
	}
	if o.LowMemory {
		atOnce = 1
	}
	for first := 0; first < len(s.Columns); first += atOnce {
		some := s
		some.Columns = s.Columns[first : first+atOnce]
		if err := pass(some); err != nil {
			return nil, err
		}
	}
	for _, c := range s.Columns {
		report.Terms = append(report.Terms, c.Name)
	}
	if o.Profile != Paper && o.Statistics {
		if report.Pairs, err = m.compare(report.Terms); err != nil {
			return nil, err
		}
	}
	report.finish(m.results)
	return report, nil
}

// take gives a buffer for every column. What is given back is used again.
func (m *measurement) take(s Subject) (buffers, error) {
	n := len(s.Columns)
	if n > len(m.free) {
		fresh, err := newBuffers(m.model, n-len(m.free), torch.NewGradients)
		if err != nil {
			return nil, err
		}
		m.all, m.free = append(m.all, fresh...), append(m.free, fresh...)
	}
	own := append(buffers(nil), m.free[:n]...)
	m.free = m.free[n:]
	return own, own.zero()
}

// give takes buffers back, unless the gradients in them are kept.
func (m *measurement) give(b buffers) {
	if !m.plan.Keep {
		m.free = append(m.free, b...)
	}
}

// exact measures the subject bucket after bucket and group after group, so that every episode is met once.
//
//	group ──▶ bucket ──▶ all
func (m *measurement) exact(s Subject) error {
	whole, err := m.take(s)
	if err != nil {
		return err
	}
	last := len(m.results) - 1
	var groups [][]kept
	for _, r := range m.results[:last] {
		sum, own, err := m.bucket(s, r)
		if err == nil {
			err = m.settle(s, r, sum, own)
		}
		if err == nil {
			err = whole.add(sum)
		}
		if err != nil {
			return err
		}
		m.give(sum)
		groups = append(groups, own...)
		for _, c := range s.Columns {
			m.results[last].addLoss(c.Name, r.Losses[lossName(c.Name)])
		}
	}
	defer m.give(whole)
	return m.settle(s, m.results[last], whole, groups)
}

// bucket adds up a bucket's gradients. If statistics are wanted, what is kept of its groups comes with them.
func (m *measurement) bucket(s Subject, r *Result) (sum buffers, groups [][]kept, err error) {
	if sum, err = m.take(s); err != nil {
		return nil, nil, err
	}
	if !m.options.Statistics {
		return sum, nil, m.backward(r, s.take(r.Rows()), sum)
	}
	for _, g := range r.Groups {
		own, err := m.take(s)
		if err == nil {
			err = m.backward(r, s.take(g.Rows), own)
		}
		if err != nil {
			return nil, nil, err
		}
		left := make([]kept, len(own))
		for i, gradient := range own { // in their order: sketches take all ranks
			if left[i], err = keep(gradient, m.plan.Keep); err != nil {
				return nil, nil, err
			}
		}
		groups = append(groups, left)
		if err := sum.add(own); err != nil {
			return nil, nil, err
		}
		m.give(own)
	}
	return sum, groups, nil
}

func (m *measurement) backward(r *Result, s Subject, into buffers) error {
	losses, err := s.backward(m.ctx, into)
	for i, c := range losses.Columns {
		r.addLoss(s.Columns[i].Name, c.Loss)
	}
	return err
}

// settle records the norms, those by layer, the cosines between the columns at hand, and what is signal, of a
// finished gradient.
func (m *measurement) settle(s Subject, r *Result, gradient buffers, groups [][]kept) error {
	names := make([]string, len(s.Columns))
	for c, column := range s.Columns {
		names[c] = column.Name
	}
	g, err := gramOf(gradient, names, m.parameters)
	if err != nil {
		return err
	}
	for c, name := range names {
		put(&r.Norms, name, g.norm(c, everything))
		for _, layer := range m.layers {
			r.layers[name] = append(r.layers[name], g.norm(c, layer))
		}
		for other := c + 1; other < len(names); other++ {
			if v, ok := g.cosine(c, other, everything); ok {
				put(&r.Cosines, name+"_"+names[other], v)
			}
		}
		if !m.options.Statistics {
			continue
		}
		own := make([]kept, len(groups))
		for k, left := range groups {
			own[k] = left[c]
		}
		sum := kept{full: gradient[c], square: g.inner(c, c, everything)}
		if !m.plan.Keep {
			sum.full, sum.sketch = nil, sumOf(own)
		}
		if err := m.separate(r, name, sum, own); err != nil {
			return err
		}
	}
	return nil
}

// separate splits the squared norm of a column's gradient into signal and noise.
func (m *measurement) separate(r *Result, name string, sum kept, groups []kept) error {
	if r.kept == nil {
		r.kept = map[string]kept{}
	}
	r.kept[name] = sum
	squares, products := make([]float64, len(groups)), make([]float64, len(groups))
	for i, g := range groups {
		own, err := g.dot(g)
		if err != nil {
			return err
		}
		product, err := sum.dot(g)
		if err != nil {
			return err
		}
		// Only the product with the other groups is taken from sketches.
		squares[i], products[i] = g.square, product+g.square-own
	}
	r.addGroups(name, squares)
	if s, ok := Separate(sum.square, squares, products, m.options.Confidence); ok {
		r.addSignal(name, s)
	}
	return nil
}

// compare takes the cosines that need gradients of different buckets, or of columns that were measured one after the
// other.
func (m *measurement) compare(names []string) ([]Pair, error) {
	var pairs []Pair
	last := len(m.results) - 1
	for i, r := range m.results {
		for c, name := range names {
			for _, other := range names[c+1:] {
				if _, taken := r.Cosines[name+"_"+other]; taken {
					continue
				}
				if err := r.compare(&r.Cosines, name+"_"+other, r.kept[name], r.kept[other]); err != nil {
					return nil, err
				}
			}
			if i < last {
				if err := r.compare(&r.CosinesAll, name, r.kept[name], m.results[last].kept[name]); err != nil {
					return nil, err
				}
			}
		}
		for j := i + 1; j < last; j++ {
			for _, name := range names {
				other := m.results[j]
				product, err := r.kept[name].dot(other.kept[name])
				if err != nil {
					return nil, err
				}
				v, ok := statistics.Cosine(product, r.kept[name].square, other.kept[name].square)
				if !ok {
					continue
				}
				// Buckets are independent draws: their inner product has no bias, only the norms have.
				pair := Pair{First: r.Name, Second: other.Name, Term: name, Cosine: v, Unbiased: math.NaN()}
				if c, ok := statistics.Cosine(product, r.Signal[name], other.Signal[name]); ok {
					pair.Unbiased = c
				}
				pairs = append(pairs, pair)
			}
		}
	}
	return pairs, nil
}

// compare notes the cosine of two gradients under a name; nothing where one of them has no length.
func (r *Result) compare(into *map[string]float64, name string, a, b kept) error {
	product, err := a.dot(b)
	if v, ok := statistics.Cosine(product, a.square, b.square); ok {
		put(into, name, v)
	}
	return err
}
