// Package gradients measures how the policy gradient is made up, without changing anything: gradients of the columns of a batch, taken of parts
// of it, and their norms, cosines, signal and noise, over the whole model and by layer and kind of parameter.
//
//	columns (loss terms, or reward components) × rows (groups, or episodes)
//	        │ backward passes into buffers, which are added up
//	        ▼
//	gram of inner products, parameter by parameter ──▶ norms, cosines, signal and noise, bands
//
// Two views of it are logged. [MeasureBuckets] takes the loss terms apart by buckets of groups whose rewards vary alike. [MeasureComponents]
// takes the task term apart by the components of the reward. Token losses are weighted under the normaliser of the whole batch, and gradients are
// linear, so that groups add up to buckets, buckets to the batch, and terms to the loss. The paper profile (paper.go) does neither: it repeats
// RAGEN's procedure, so that published plots can be compared.
package gradients

import (
	"context"
	"errors"
	"math"

	"gyre/internal/statistics"
	"gyre/orchestrate/loop/train"
	"gyre/torch"
)

// Subject is what is measured: a policy, a batch whose columns are filled and which is weighed as a whole, and the loss. Measuring changes none of
// them. Over ranks it is collective.
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
	Subject
	ctx        context.Context
	options    Options
	plan       Plan
	parameters []parameter
	results    []*Result           // of the buckets, and last of all of them
	vectors    []map[string]vector // by result and column: what inner products are taken of at the end
	all        buffers             // that were ever made
	free       buffers             // those of them that nothing lies in any more
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
	m := &measurement{Subject: s, ctx: ctx, options: o}
	parameters, size, err := parametersOf(named)
	if err != nil {
		return nil, err
	}
	m.parameters = parameters
	whole := Bucket{Name: "all"}
	for _, bucket := range buckets {
		whole.Groups = append(whole.Groups, bucket.Groups...)
		m.results = append(m.results, newResult(bucket, s.Batch))
		m.vectors = append(m.vectors, map[string]vector{})
	}
	m.results, m.vectors = append(m.results, newResult(whole, s.Batch)), append(m.vectors, map[string]vector{})
	m.plan = NewPlan(size, len(s.Columns), len(whole.Groups), len(buckets), o)
	defer func() { m.all.close() }()
	report := &Report{Options: o, Plan: m.plan}
	for _, c := range s.Columns {
		report.Terms = append(report.Terms, c.Name)
	}
	pass := m.exact
	if o.Profile == Paper {
		pass = m.paper
	}
	atOnce := len(s.Columns)
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
	if o.Profile != Paper && o.Statistics {
		if report.Pairs, err = m.compare(); err != nil {
			return nil, err
		}
	}
	report.finish(m.results)
	return report, nil
}

// takeBuffers gives n empty buffers. What is given back is used again.
func (m *measurement) takeBuffers(n int) (buffers, error) {
	if n > len(m.free) {
		fresh, err := newBuffers(m.Policy.Model, n-len(m.free), torch.NewGradients)
		if err != nil {
			return nil, err
		}
		m.all, m.free = append(m.all, fresh...), append(m.free, fresh...)
	}
	own := append(buffers(nil), m.free[:n]...)
	m.free = m.free[n:]
	return own, own.zero()
}

func (m *measurement) give(b buffers) { m.free = append(m.free, b...) }

// trace is what remains of a group's gradient of one column.
type trace struct {
	vector
	square float64 // its squared norm; not filled where the vector is the gradient itself
}

// exact measures the subject bucket after bucket and group after group, so that every episode is met once.
//
//	group ──▶ bucket ──▶ all
func (m *measurement) exact(s Subject) error {
	whole, err := m.takeBuffers(len(s.Columns))
	if err != nil {
		return err
	}
	last := len(m.results) - 1
	var groups [][]trace
	for i := range m.results[:last] {
		sum, traces, err := m.bucket(s, i)
		if err == nil {
			err = m.settle(s, i, sum, traces)
		}
		if err == nil {
			err = whole.add(sum)
		}
		if err != nil {
			return err
		}
		if !m.plan.Keep {
			m.give(sum)
		}
		groups = append(groups, traces...)
	}
	for _, part := range m.results[:last] {
		for _, c := range s.Columns {
			m.results[last].addLoss(c.Name, part.Losses[lossName(c.Name)])
		}
	}
	if err := m.settle(s, last, whole, groups); err != nil {
		return err
	}
	if !m.plan.Keep {
		m.give(whole)
	}
	return nil
}

// bucket adds up a bucket's gradients. Its groups leave traces if statistics are wanted.
func (m *measurement) bucket(s Subject, i int) (sum buffers, traces [][]trace, err error) {
	r := m.results[i]
	if sum, err = m.takeBuffers(len(s.Columns)); err != nil {
		return nil, nil, err
	}
	if !m.options.Statistics {
		return sum, nil, m.group(r, s.take(r.Rows()), sum)
	}
	for _, g := range r.Groups {
		own, err := m.takeBuffers(len(s.Columns))
		if err != nil {
			return nil, nil, err
		}
		if err := m.group(r, s.take(g.Rows), own); err != nil {
			return nil, nil, err
		}
		left, err := m.leave(own)
		if err != nil {
			return nil, nil, err
		}
		traces = append(traces, left)
		if err := sum.add(own); err != nil {
			return nil, nil, err
		}
		if !m.plan.Keep {
			m.give(own)
		}
	}
	return sum, traces, nil
}

func (m *measurement) group(r *Result, s Subject, into buffers) error {
	losses, err := s.backward(m.ctx, into)
	for i, c := range losses.Columns {
		r.addLoss(s.Columns[i].Name, c.Loss)
	}
	return err
}

// leave takes a group's traces.
func (m *measurement) leave(own buffers) ([]trace, error) {
	out := make([]trace, len(own))
	for i, g := range own { // in their order: sketches take all ranks
		v, err := newVector(g, m.plan.Keep)
		if err != nil {
			return nil, err
		}
		out[i].vector = v
	}
	if m.plan.Keep {
		return out, nil
	}
	for i, g := range own {
		square, _, err := g.Dot(g)
		if err != nil {
			return nil, err
		}
		out[i].square = square
	}
	return out, nil
}

// settle records the norms, those by layer, the cosines between the columns at hand, and what is signal, of a finished gradient.
func (m *measurement) settle(s Subject, i int, gradient buffers, groups [][]trace) error {
	r := m.results[i]
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
		for _, layer := range layers(m.parameters) {
			r.addLayer(layer.name, name, g.norm(c, layer))
		}
		for other := c + 1; other < len(names); other++ {
			if v, ok := g.cosine(c, other, everything); ok {
				put(&r.Cosines, name+"_"+names[other], v)
			}
		}
	}
	if !m.options.Statistics {
		return nil
	}
	for c, name := range names {
		own := make([]trace, len(groups))
		for k, left := range groups {
			own[k] = left[c]
		}
		if m.vectors[i][name], err = m.separate(r, name, gradient[c], own); err != nil {
			return err
		}
	}
	return nil
}

// separate splits the squared norm of a column's gradient into signal and noise, and gives what is remembered of the gradient.
func (m *measurement) separate(r *Result, name string, sum *torch.Gradients, groups []trace) (vector, error) {
	v := vector{full: sum}
	if !m.plan.Keep {
		parts := make([]vector, len(groups))
		for i, t := range groups {
			parts[i] = t.vector
		}
		v = sumOf(parts)
	}
	squares, products := make([]float64, len(groups)), make([]float64, len(groups))
	for i, t := range groups {
		own, err := t.dot(t.vector)
		if err != nil {
			return v, err
		}
		product, err := v.dot(t.vector)
		if err != nil {
			return v, err
		}
		squares[i], products[i] = own, product
		if !m.plan.Keep { // only the part with the other groups is taken from the sketch
			squares[i], products[i] = t.square, product+t.square-own
		}
	}
	r.addGroups(name, squares)
	if s, ok := Separate(r.Norms[name]*r.Norms[name], squares, products, m.options.Confidence); ok {
		r.addSignal(name, s)
	}
	return v, nil
}

// compare takes the cosines that need gradients of different buckets, or of columns that were measured one after the other.
func (m *measurement) compare() ([]Pair, error) {
	var pairs []Pair
	last := len(m.results) - 1
	for i, r := range m.results {
		for c, column := range m.Columns {
			name := column.Name
			for _, other := range m.Columns[c+1:] {
				if !m.options.LowMemory {
					break // settle has taken them
				}
				v, _, ok, err := m.cosine(i, name, i, other.Name)
				if err != nil {
					return nil, err
				}
				if ok {
					put(&r.Cosines, name+"_"+other.Name, v)
				}
			}
			if i == last {
				continue
			}
			v, _, ok, err := m.cosine(i, name, last, name)
			if err != nil {
				return nil, err
			}
			if ok {
				put(&r.CosinesAll, name, v)
			}
		}
		for j := i + 1; j < last; j++ {
			for _, column := range m.Columns {
				v, product, ok, err := m.cosine(i, column.Name, j, column.Name)
				if err != nil {
					return nil, err
				}
				if !ok {
					continue
				}
				// Buckets are independent draws: their inner product has no bias, only the norms have.
				pair := Pair{First: r.Name, Second: m.results[j].Name, Term: column.Name, Cosine: v, Unbiased: math.NaN()}
				if c, ok := statistics.Cosine(product, r.Signal[column.Name], m.results[j].Signal[column.Name]); ok {
					pair.Unbiased = c
				}
				pairs = append(pairs, pair)
			}
		}
	}
	return pairs, nil
}

// cosine compares the gradients of two columns in two results; ok is false where one of them has no length.
func (m *measurement) cosine(i int, first string, j int, second string) (cosine, product float64, ok bool, err error) {
	product, err = m.vectors[i][first].dot(m.vectors[j][second])
	a, b := m.results[i].Norms[first], m.results[j].Norms[second]
	cosine, ok = statistics.Cosine(product, a*a, b*b)
	return cosine, product, ok, err
}
