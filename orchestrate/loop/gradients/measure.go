// Package gradients measures how the policy gradient is made up, without changing anything: gradients of the columns
// of a batch, taken of parts of it, and their norms, cosines, signal and noise, over the whole model and by layer and
// kind of parameter.
//
//	columns (loss terms, or reward components) × rows (groups, or episodes)
//	        │ backward passes into buffers, which are added up: group ─▶ bucket ─▶ all
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
func LossTerms(o train.Objective) (out []train.Column) {
	names := map[torch.TermKind]string{torch.TermTask: torch.Task, torch.TermEntropy: torch.Entropy,
		torch.TermBalance: torch.Balance, torch.TermKL: torch.KL}
	for _, kind := range o.Terms() {
		out = append(out, train.Column{Name: names[kind], Kind: kind})
	}
	return out
}

// names are those of the columns.
func (s Subject) names() []string {
	var out []string
	for _, c := range s.Columns {
		out = append(out, c.Name)
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

// backward adds the gradients of the columns to buffers, and gives their losses.
func (s Subject) backward(ctx context.Context, into buffers) ([]float64, error) {
	columns := make([]train.Column, len(s.Columns))
	for i, c := range s.Columns {
		c.Into = into[i]
		columns[i] = c
	}
	found, err := s.Policy.Backward(ctx, s.Batch, s.Objective, columns)
	var losses []float64
	for _, c := range found.Columns {
		losses = append(losses, c.Loss)
	}
	return losses, err
}

// measurement is one at work. Close it.
type measurement struct {
	Subject
	ctx   context.Context
	named []torch.Parameter
	keep  bool // every gradient stays in buffers of its own
	all   buffers
	// The buffers of the group, the bucket and the batch that are being added up.
	group, bucket, whole buffers
}

func begin(ctx context.Context, s Subject) (m *measurement, err error) {
	m = &measurement{Subject: s, ctx: ctx}
	m.named, err = s.Policy.Model.Parameters()
	return m, err
}

func (m *measurement) close() {
	m.all.close()
	torch.CloseParameters(m.named)
}

// empty gives n empty buffers: those that were in use, unless they are kept.
func (m *measurement) empty(inUse *buffers, n int) (buffers, error) {
	if *inUse != nil && !m.keep {
		return *inUse, inUse.zero()
	}
	fresh, err := newBuffers(m.Policy.Model, n, torch.NewGradients)
	m.all, *inUse = append(m.all, fresh...), fresh
	return fresh, err
}

// sum is the gradient of a bucket for each column.
type sum struct {
	Bucket
	losses  []float64
	gram    gram       // of the columns
	vectors []vector   // by column
	groups  [][]vector // by group and column
}

// adder adds the gradients of rows to buffers, one for each column, and gives the columns' losses.
type adder func(rows []int, into buffers) (losses []float64, err error)

// sums measures bucket after bucket, group after group, and last the whole batch: every row is met once.
func (m *measurement) sums(buckets []Bucket, columns []string, add adder) (out []*sum, err error) {
	n := len(columns)
	all := &sum{Bucket: Bucket{Name: "all"}, losses: make([]float64, n)}
	whole, err := m.empty(&m.whole, n)
	if err != nil {
		return nil, err
	}
	for _, bucket := range buckets {
		s, into := &sum{Bucket: bucket, losses: make([]float64, n)}, whole
		if len(buckets) > 1 {
			if into, err = m.empty(&m.bucket, n); err != nil {
				return nil, err
			}
		}
		if err = m.byGroup(s, into, add); err == nil {
			err = m.finish(s, into, columns)
		}
		if err == nil && len(buckets) > 1 {
			err = whole.add(into)
		}
		if err != nil {
			return nil, err
		}
		out, all.groups = append(out, s), append(all.groups, s.groups...)
		for c, loss := range s.losses {
			all.losses[c] += loss
		}
	}
	return append(out, all), m.finish(all, whole, columns)
}

// byGroup adds up a bucket's groups, and keeps what comparing them needs.
func (m *measurement) byGroup(s *sum, into buffers, add adder) error {
	for _, g := range s.Groups {
		own, err := m.empty(&m.group, len(into))
		if err != nil {
			return err
		}
		losses, err := add(g.Rows, own)
		if err != nil {
			return err
		}
		vectors := make([]vector, len(own))
		for c, gradient := range own { // in their order: sketches take all ranks
			s.losses[c] += losses[c]
			if vectors[c], err = vectorOf(gradient, m.keep); err != nil {
				return err
			}
		}
		s.groups = append(s.groups, vectors)
		if err := into.add(own); err != nil {
			return err
		}
	}
	return nil
}

// finish takes the inner products of a sum that is complete.
func (m *measurement) finish(s *sum, gradient buffers, columns []string) (err error) {
	if s.gram, err = gramOf(gradient, columns, m.named); err != nil {
		return err
	}
	for c, g := range gradient {
		v := vector{full: g, square: s.gram.inner(c, c, everything)}
		if !m.keep {
			v.full, v.sketch = nil, sumOf(s.column(c))
		}
		s.vectors = append(s.vectors, v)
	}
	return nil
}

// column are the groups' gradients of one column.
func (s *sum) column(c int) []vector {
	var out []vector
	for _, vectors := range s.groups {
		out = append(out, vectors[c])
	}
	return out
}
