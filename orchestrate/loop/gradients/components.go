package gradients

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/train"
	"gyre/torch"
)

// ComponentOptions choose what is measured of reward components beside the whole batch.
type ComponentOptions struct {
	Permutations int               // rounds behind the bands; 0: no bands
	Confidence   float64           // of the bands
	Seed, Step   uint64            // of the permutations
	Keep         func(Taken) error // sees the gradients of the whole batch before they are freed
}

// Taken are gradients under their names, and the parameters that each of them is of.
type Taken struct {
	Names      []string
	Gradients  []*torch.Gradients
	Parameters []torch.Parameter
}

// compared is one of the gradients that are compared: of a reward component or of the total, with its advantages, or
// of another loss term.
type compared struct {
	name   string
	means  []float64    // advantages by row; nil of another loss term
	tokens [][]float32  // advantages by row and token, where tokens of a row differ
	term   train.Column // of another loss term
}

// components is a measurement of reward components on its way. At the weights that sampled the episodes nothing is
// clipped, so a component's gradient is linear in its advantages. Where these are alike for all tokens of an episode,
// the episode's gradient is taken once, at advantage 1 (its unit gradient), and added to every component's buffer.
// What the gradient would be with its rewards permuted follows from the inner products of unit gradients.
type components struct {
	*measurement
	list     []compared
	alike    bool        // all tokens of an episode have one advantage
	ones     [][]float32 // advantages of unit gradients
	unit     *torch.Gradients
	sketches [][]float32 // of the unit gradients, by row; nil without bands
}

// MeasureComponents takes the gradients of reward components, of the total, and of the entropy and KL terms that the
// subject's columns have. groups are the group ids of the rows.
func MeasureComponents(ctx context.Context, s Subject, groups []int, a Advantages,
	o ComponentOptions) (*ComponentReport, error) {
	own, err := begin(ctx, s)
	if err != nil {
		return nil, err
	}
	defer own.close()
	m := &components{measurement: own, list: comparedOf(a, s.Columns), alike: a.Tokens == nil}
	report := &ComponentReport{Components: len(a.Names), parameters: own.named}
	for _, x := range m.list {
		report.Names = append(report.Names, x.name)
	}
	for _, sequence := range s.Batch.Sequences {
		m.ones = append(m.ones, slices.Repeat([]float32{1}, len(sequence.IDs)))
	}
	if o.Permutations > 0 {
		m.sketches = make([][]float32, s.Batch.Len())
	}
	report.Bytes = experiment.ComponentBytes(entries(own.named),
		experiment.ComponentBuffers(len(a.Names), len(m.list)-len(a.Names)-1), s.Batch.Len(), o.Permutations)
	fresh := torch.NewOwnGradients // no other rank has a part in an episode's own
	if s.Policy.OneByOne() {
		fresh = torch.NewGradients
	}
	unit, err := newBuffers(s.Policy.Model, 1, fresh)
	if err != nil {
		return nil, err
	}
	defer unit.close()
	m.unit = unit[0]
	whole, err := m.empty(&m.whole, len(m.list))
	if err == nil {
		err = m.add(whole)
	}
	if err == nil {
		report.gram, err = gramOf(whole, report.Names, own.named)
	}
	if err != nil {
		return nil, err
	}
	report.check(a)
	if m.sketches != nil {
		if report.bands, err = m.bands(groups, o, report.gram); err != nil {
			return nil, err
		}
	}
	if o.Keep != nil {
		return report, o.Keep(Taken{report.Names, m.whole, m.named})
	}
	return report, nil
}

// comparedOf lists what is measured: the components, the loss's other terms, the total.
func comparedOf(a Advantages, columns []train.Column) (list []compared) {
	tokens := a.Tokens
	if tokens == nil {
		tokens = make([][][]float32, len(a.Names)+1)
	}
	for k, name := range a.Names {
		list = append(list, compared{name: name, means: a.Means[k], tokens: tokens[k]})
	}
	for _, c := range columns {
		if c.Kind != torch.TermTask {
			list = append(list, compared{name: c.Name, term: c})
		}
	}
	return append(list, compared{name: Total, means: a.Total, tokens: tokens[len(a.Names)]})
}

// add puts the gradients of all rows into one buffer for each that is measured.
func (m *components) add(into buffers) error {
	var mine []int // of the sketches
	err := m.Policy.EachRow(m.ctx, m.Batch, into, func(row int, own bool) error {
		if own {
			mine = append(mine, row)
		}
		return m.row(row, own, into)
	})
	if err != nil || m.sketches == nil {
		return err
	}
	return m.Policy.Complete(m.ctx, mine, m.sketches)
}

// row adds the gradients of one row; this rank holds it, or only takes part in the pass. A row of -1 is none.
func (m *components) row(row int, own bool, into buffers) (err error) {
	if m.ctx.Err() != nil {
		return context.Cause(m.ctx)
	}
	nonzero := func(v float32) bool { return v != 0 }
	var columns []train.Column // in step all ranks have the same
	for k, x := range m.list {
		counts := x.tokens != nil && (m.Policy.InStep() || row >= 0 && slices.ContainsFunc(x.tokens[row], nonzero))
		switch {
		case x.means == nil:
			x.term.Into = into[k]
			columns = append(columns, x.term)
		case counts:
			name := fmt.Sprintf("task %d", k)
			columns = append(columns, train.Column{Name: name, Advantages: x.tokens, Into: into[k]})
		}
	}
	if m.alike || m.sketches != nil {
		if err := m.unit.Zero(); err != nil {
			return err
		}
		columns = append(columns, train.Column{Name: "unit", Advantages: m.ones, Into: m.unit})
	}
	pass := row
	if !own {
		pass = -1
	}
	if _, err := m.Policy.Alone(m.Batch, pass, m.Objective, columns); err != nil || row < 0 {
		return err
	}
	for k, x := range m.list {
		if m.alike && x.means != nil && x.means[row] != 0 {
			if err := into[k].Add(m.unit, x.means[row]); err != nil {
				return err
			}
		}
	}
	if m.sketches != nil {
		m.sketches[row], err = m.unit.Sketch(episodeSketch)
	}
	return err
}

// bands puts one beside the cosine of every pair of which at least one is made of rewards.
func (m *components) bands(ids []int, o ComponentOptions, g gram) (map[[2]int]Band, error) {
	b := newBands(m.sketches, Groups(ids, nil), (o.Permutations+1)/2, o.Confidence,
		rand.New(rand.NewPCG(o.Seed, o.Step)))
	shuffled := make([]permuted, len(m.list))
	for k, x := range m.list {
		if x.means != nil {
			shuffled[k] = b.permute(x.means)
		}
	}
	out := map[[2]int]Band{}
	for i, first := range m.list {
		for j := i + 1; j < len(m.list); j++ {
			second := m.list[j]
			var band Band
			var ok bool
			switch {
			case first.means != nil && second.means != nil:
				band, ok = b.between(first.means, second.means, shuffled[i], shuffled[j])
			case first.means != nil || second.means != nil:
				term, component := i, j
				if first.means != nil {
					term, component = j, i
				}
				sketch, err := m.whole[term].Sketch(episodeSketch)
				if err != nil {
					return nil, err
				}
				products := make([]float64, len(m.sketches))
				for row, own := range m.sketches {
					products[row] = dotSketches(own, sketch)
				}
				band, ok = b.interval(shuffled[component].cosines(products, g.inner(term, term, everything)))
			}
			if ok {
				out[[2]int{i, j}] = band
			}
		}
	}
	return out, nil
}
