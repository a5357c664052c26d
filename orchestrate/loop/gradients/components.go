package gradients

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/loop/train"
	"gyre/torch"
)

// ComponentOptions choose what is measured of reward components beside the whole batch.
type ComponentOptions struct {
	Buckets      []Bucket // nil: the whole batch only
	Permutations int      // rounds behind the bands; 0: no bands
	Confidence   float64  // of the bands
	Seed, Step   uint64   // of the permutations
	// Keep sees the gradients of the whole batch before they are freed.
	Keep func(names []string, gradients []*torch.Gradients, parameters []torch.Parameter) error
}

// ComponentBuffers is how many gradient buffers a measurement of components holds.
func ComponentBuffers(components int, entropy, kl, buckets bool) int {
	n := components + 1 // and the total
	if entropy {
		n++
	}
	if kl {
		n++
	}
	if buckets {
		n *= 2
	}
	return n + 1 // and an episode's own
}

// ComponentBytes is what a measurement of so many parameters and episodes holds besides a forward pass.
func ComponentBytes(parameters int64, buffers, samples, permutations int) int64 {
	bytes := int64(buffers) * 4 * parameters
	if permutations > 0 {
		n, rounds := int64(samples), int64(permutations+1)/2
		bytes += 2*n*episodeSketch*4 + n*n*12 + n*rounds*8*int64(buffers)
	}
	return bytes
}

// components is a measurement of reward components on its way. At the weights that sampled the episodes nothing is clipped, so a component's
// gradient is linear in its advantages. Where these are alike for all tokens of an episode, the episode's gradient is taken once, at advantage 1
// (its unit gradient), and added to every component's buffer. What the gradient would be with its rewards permuted follows from the inner products
// of unit gradients.
type components struct {
	Subject
	ctx        context.Context
	advantages Advantages
	options    ComponentOptions
	names      []string
	ones       [][]float32 // advantages of unit gradients
	unit       *torch.Gradients
	whole      buffers     // by name
	sketches   [][]float32 // of the unit gradients, by row
	groups     [][]int     // rows
	report     *ComponentReport
}

// MeasureComponents takes the gradients of reward components, of the total, and of the entropy and KL terms that the subject's columns have. groups are the
// group ids of the rows.
func MeasureComponents(ctx context.Context, s Subject, groups []int, a Advantages, o ComponentOptions) (*ComponentReport, error) {
	named, err := s.Policy.Model.Parameters()
	if err != nil {
		return nil, err
	}
	defer torch.CloseParameters(named)
	m := &components{Subject: s, ctx: ctx, advantages: a, options: o, names: slices.Clone(a.Names)}
	for _, c := range s.Columns {
		if c.Kind != torch.TermTask {
			m.names = append(m.names, c.Name)
		}
	}
	m.names = append(m.names, Total)
	for _, g := range Groups(groups, make([]float64, len(groups))) {
		m.groups = append(m.groups, g.Rows)
	}
	for _, sequence := range s.Batch.Sequences {
		m.ones = append(m.ones, slices.Repeat([]float32{1}, len(sequence.IDs)))
	}
	parameters, size, err := parametersOf(named)
	if err != nil {
		return nil, err
	}
	m.report = &ComponentReport{Names: m.names, Components: len(a.Names), parameters: parameters}
	n := ComponentBuffers(len(a.Names), m.column(Entropy) != nil, m.column(KL) != nil, o.Buckets != nil)
	m.report.Bytes = ComponentBytes(size, n, s.Batch.Len(), o.Permutations)
	fresh := torch.NewOwnGradients // no other rank has a part in an episode's own
	if s.Policy.OneByOne() {
		fresh = torch.NewGradients
	}
	own, err := newBuffers(s.Policy.Model, 1, fresh)
	if err != nil {
		return nil, err
	}
	defer own.close()
	all, err := newBuffers(s.Policy.Model, n-1, torch.NewGradients)
	if err != nil {
		return nil, err
	}
	defer all.close()
	m.unit, m.whole = own[0], all[:len(m.names)]
	if err := m.run(all[len(m.names):]); err != nil {
		return nil, err
	}
	if o.Keep != nil {
		if err := o.Keep(m.names, m.whole, named); err != nil {
			return nil, err
		}
	}
	return m.report, nil
}

// column is the subject's of a name; nil if it has none.
func (m *components) column(name string) *train.Column {
	for i := range m.Columns {
		if m.Columns[i].Name == name {
			return &m.Columns[i]
		}
	}
	return nil
}

// run measures bucket by bucket in buffers of their own, if there are buckets, and then the whole batch.
func (m *components) run(part buffers) error {
	if m.options.Permutations > 0 {
		m.sketches = make([][]float32, m.Batch.Len())
	}
	if m.options.Buckets == nil {
		if err := m.add(train.All(m.Batch.Len()), m.whole); err != nil {
			return err
		}
	}
	for _, bucket := range m.options.Buckets {
		if err := part.zero(); err != nil {
			return err
		}
		if err := m.add(bucket.Rows(), part); err != nil {
			return err
		}
		g, err := gramOf(part, m.names, m.report.parameters)
		if err != nil {
			return err
		}
		m.report.buckets = append(m.report.buckets, bucketGram{bucket.Name, g})
		if err := m.whole.add(part); err != nil {
			return err
		}
	}
	var err error
	if m.report.gram, err = gramOf(m.whole, m.names, m.report.parameters); err != nil {
		return err
	}
	m.report.check(m.advantages)
	if m.sketches == nil {
		return nil
	}
	return m.bands()
}

// add puts the gradients of some rows into one buffer per name.
func (m *components) add(rows []int, into buffers) error {
	if m.Policy.OneByOne() { // one rank after the other brings its row, and all make the pass
		size, rank := m.Policy.World().Size(), m.Policy.World().Rank()
		for _, row := range rows {
			if err := m.row(row, row%size == rank, into); err != nil {
				return err
			}
		}
		return nil
	}
	err := m.Policy.Deal(m.Batch.Take(rows), into, func(_ int, own []int) error {
		passes := len(own)
		if m.Policy.InStep() {
			most, err := m.Policy.World().Max(m.ctx, float64(passes))
			if err != nil {
				return err
			}
			passes = int(most)
		}
		for k := range passes {
			row := -1 // this rank only goes along with the others
			if k < len(own) {
				row = rows[own[k]]
			}
			if err := m.row(row, row >= 0, into); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || m.sketches == nil {
		return err
	}
	mine := map[int][]float32{}
	for _, row := range rows {
		if m.sketches[row] != nil {
			mine[row] = m.sketches[row]
		}
	}
	all, err := ranks.Gather(m.ctx, m.Policy.World(), mine)
	for _, part := range all {
		for row, sketch := range part {
			m.sketches[row] = sketch
		}
	}
	return err
}

// row adds the gradients of one row; this rank holds it, or only takes part in the pass. A row of -1 is none.
func (m *components) row(row int, mine bool, into buffers) error {
	if m.ctx.Err() != nil {
		return context.Cause(m.ctx)
	}
	alike := m.advantages.Tokens == nil
	var columns []train.Column
	for k, name := range m.names {
		if c := m.column(name); c != nil {
			own := *c
			own.Into = into[k]
			columns = append(columns, own)
		} else if !alike && (m.Policy.InStep() || m.counts(k, row)) {
			columns = append(columns, train.Column{Name: fmt.Sprintf("task %d", k), Kind: torch.TermTask,
				Advantages: m.advantages.Tokens[min(k, len(m.advantages.Tokens)-1)], Into: into[k]})
		}
	}
	if alike || m.sketches != nil {
		if err := m.unit.Zero(); err != nil {
			return err
		}
		columns = append(columns, train.Column{Name: "unit", Kind: torch.TermTask, Advantages: m.ones, Into: m.unit})
	}
	pass := row
	if !mine {
		pass = -1
	}
	if _, err := m.Policy.Alone(m.Batch, pass, m.Objective, columns); err != nil {
		return err
	}
	if alike && row >= 0 {
		for k, g := range into {
			if a := m.advantage(k, row); a != 0 {
				if err := g.Add(m.unit, a); err != nil {
					return err
				}
			}
		}
	}
	if m.sketches == nil || row < 0 {
		return nil
	}
	var err error
	m.sketches[row], err = m.unit.Sketch(episodeSketch)
	return err
}

// advantage is that of a row in a gradient; 0 for the terms that have none.
func (m *components) advantage(k, row int) float64 {
	if of := m.rewarded(k); of != nil {
		return of[row]
	}
	return 0
}

// rewarded are the mean advantages behind a gradient; nil where it is of another term of the loss.
func (m *components) rewarded(k int) []float64 {
	switch {
	case k < m.report.Components:
		return m.advantages.Means[k]
	case k == len(m.names)-1:
		return m.advantages.Total
	}
	return nil
}

// counts reports whether any token of a row has an advantage in a gradient.
func (m *components) counts(k, row int) bool {
	if row < 0 {
		return false
	}
	own := m.advantages.Tokens[min(k, len(m.advantages.Tokens)-1)][row]
	return slices.ContainsFunc(own, func(v float32) bool { return v != 0 })
}

// bands puts one beside the cosine of every pair of which at least one is made of rewards.
func (m *components) bands() error {
	b := newBands(m.sketches, m.groups, (m.options.Permutations+1)/2, m.options.Confidence,
		rand.New(rand.NewPCG(m.options.Seed, m.options.Step)))
	shuffled := make([]permuted, len(m.names))
	for k := range m.names {
		if of := m.rewarded(k); of != nil {
			shuffled[k] = b.permute(of)
		}
	}
	m.report.bands = map[[2]int]Band{}
	for i := range m.names {
		for j := i + 1; j < len(m.names); j++ {
			first, second := m.rewarded(i), m.rewarded(j)
			var band Band
			var ok bool
			switch {
			case first != nil && second != nil:
				band, ok = b.between(first, second, shuffled[i], shuffled[j])
			case first != nil || second != nil:
				term, component := i, j
				if first != nil {
					term, component = j, i
				}
				sketch, err := m.whole[term].Sketch(episodeSketch)
				if err != nil {
					return err
				}
				products := make([]float64, len(m.sketches))
				for row, own := range m.sketches {
					products[row] = dotSketches(own, sketch)
				}
				band, ok = b.interval(shuffled[component].cosines(products, m.report.gram.inner(term, term, everything)))
			}
			if ok {
				m.report.bands[[2]int{i, j}] = band
			}
		}
	}
	return nil
}
