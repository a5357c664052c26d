package components

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"gyre/internal/statistics"
	"gyre/orchestrate/loop/analysis"
	"gyre/torch"
)

// Batch is what Measure needs to know of the episodes.
type Batch struct {
	Samples []Sample
	// Backward adds the gradients of one episode: of the on-policy loss -Σ weight·advantage·log-prob under several advantages, and of the
	// entropy and KL terms (nil: the loss has no such term), all under the normaliser of the whole batch.
	Backward    func(sample int, tasks []Task, entropy, kl *torch.Gradients) error
	Entropy, KL bool // the terms that the loss has
	// Spread, if not nil, has run add the gradients of this process's part of the samples to into, which the other processes' parts join; a
	// negative sample is none, and only goes along with the others' pass. Share gives every process the sketches that each has taken.
	Spread func(samples []int, into []*torch.Gradients, run func(samples []int) error) error
	Share  func(own map[int][]float32) (map[int][]float32, error)
	InStep bool // processes make every pass together, of different samples, so that each must have the same tasks
}

// Task is the task term of the loss under some advantages, token-aligned; nil: 1 for every token.
type Task struct {
	Advantages []float32
	Into       *torch.Gradients
}

// Options choose what is measured beside the whole batch.
type Options struct {
	Buckets      []analysis.Bucket // nil: the whole batch only
	Permutations int               // rounds behind the bands; 0: no bands
	Confidence   float64           // of the bands
	Seed, Step   uint64            // of the permutations
	// Keep sees the gradients of the whole batch before they are freed.
	Keep func(names []string, gradients []*torch.Gradients, parameters []torch.Parameter) error
}

// Buffers is how many gradient buffers a measurement holds, Bytes what it holds in all.
func Buffers(parts int, entropy, kl, buckets bool) int {
	n := parts + 1 // and the total
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

// Bytes is what a measurement of so many parameters and episodes holds besides a forward pass.
func Bytes(parameters int64, buffers, samples, permutations int) int64 {
	bytes := int64(buffers) * 4 * parameters
	if permutations > 0 {
		n, rounds := int64(samples), int64(permutations+1)/2
		bytes += 2*n*sketchDimension*4 + n*n*12 + n*rounds*8*int64(buffers)
	}
	return bytes
}

// Measure computes the gradients of all parts of the batch's reward. It changes nothing: gradients go into buffers of its own.
func Measure(ctx context.Context, model *torch.Model, b Batch, a Advantages, o Options) (*Report, error) {
	parameters, err := model.Parameters()
	if err != nil {
		return nil, err
	}
	defer torch.CloseParameters(parameters)
	m := &measurement{ctx: ctx, batch: b, advantages: a, options: o, names: slices.Clone(a.Names)}
	if b.Entropy {
		m.names = append(m.names, Entropy)
	}
	if b.KL {
		m.names = append(m.names, KL)
	}
	m.names = append(m.names, Total)
	m.report = &Report{Names: m.names, Parts: len(a.Names)}
	elements := int64(0)
	for _, p := range parameters {
		shape, err := p.Tensor.Shape()
		if err != nil {
			return nil, err
		}
		size := int64(1)
		for _, n := range shape {
			size *= n
		}
		elements += size
		m.report.parameters = append(m.report.parameters, parameter{p.Name, size})
	}
	buffers := Buffers(len(a.Names), b.Entropy, b.KL, o.Buckets != nil)
	m.report.Bytes = Bytes(elements, buffers, len(b.Samples), o.Permutations)
	for i := range buffers {
		fresh := torch.NewGradients
		if i == 0 && b.Spread != nil { // an episode's own: no other process has a part in it
			fresh = torch.NewOwnGradients
		}
		g, err := fresh(model)
		if err != nil {
			m.close()
			return nil, fmt.Errorf("a gradient buffer: %w", err)
		}
		m.buffers = append(m.buffers, g)
	}
	defer m.close()
	if err := m.run(); err != nil {
		return nil, err
	}
	if o.Keep != nil {
		if err := o.Keep(m.names, m.whole, parameters); err != nil {
			return nil, err
		}
	}
	return m.report, nil
}

// measurement is one on its way.
type measurement struct {
	ctx        context.Context
	batch      Batch
	advantages Advantages
	options    Options
	names      []string // of the gradients
	buffers    []*torch.Gradients
	unit       *torch.Gradients
	whole      []*torch.Gradients // by name
	sketches   [][]float32
	report     *Report
}

func (m *measurement) close() {
	for _, g := range m.buffers {
		g.Close()
	}
}

func (m *measurement) run() error {
	n := len(m.names)
	m.unit, m.whole = m.buffers[0], m.buffers[1:n+1]
	if m.options.Permutations > 0 {
		m.sketches = make([][]float32, len(m.batch.Samples))
	}
	if m.options.Buckets == nil {
		all := make([]int, len(m.batch.Samples))
		for i := range all {
			all[i] = i
		}
		if err := m.add(all, m.whole); err != nil {
			return err
		}
	}
	part := m.buffers[n+1:]
	for _, bucket := range m.options.Buckets {
		for _, g := range part {
			if err := g.Zero(); err != nil {
				return err
			}
		}
		if err := m.add(bucket.Samples(), part); err != nil {
			return err
		}
		grams, err := m.grams(part)
		if err != nil {
			return err
		}
		m.report.Buckets = append(m.report.Buckets, Bucket{Name: bucket.Name, grams: grams})
		for i, g := range part {
			if err := m.whole[i].Add(g, 1); err != nil {
				return err
			}
		}
	}
	var err error
	if m.report.grams, err = m.grams(m.whole); err != nil {
		return err
	}
	m.report.check(m.advantages)
	return m.bands()
}

// add puts the chosen episodes' gradients into one buffer per name.
func (m *measurement) add(samples []int, into []*torch.Gradients) error {
	if m.batch.Spread == nil {
		return m.addOwn(samples, into)
	}
	if err := m.batch.Spread(samples, into, func(own []int) error { return m.addOwn(own, into) }); err != nil || m.sketches == nil {
		return err
	}
	own := map[int][]float32{}
	for _, i := range samples {
		if m.sketches[i] != nil {
			own[i] = m.sketches[i]
		}
	}
	all, err := m.batch.Share(own)
	for i, sketch := range all {
		m.sketches[i] = sketch
	}
	return err
}

func (m *measurement) addOwn(samples []int, into []*torch.Gradients) error {
	var entropy, kl *torch.Gradients
	if m.batch.Entropy {
		entropy = into[slices.Index(m.names, Entropy)]
	}
	if m.batch.KL {
		kl = into[slices.Index(m.names, KL)]
	}
	for _, i := range samples {
		if m.ctx.Err() != nil {
			return context.Cause(m.ctx)
		}
		var err error
		if m.advantages.Tokens == nil {
			err = m.scaled(i, into, entropy, kl)
		} else {
			err = m.tokenwise(i, into, entropy, kl)
		}
		if err != nil {
			return err
		}
		if m.sketches != nil && i >= 0 {
			if m.sketches[i], err = m.unit.Sketch(sketchDimension); err != nil {
				return err
			}
		}
	}
	return nil
}

// scaled takes the episode's gradient once, at advantage 1, for all parts: each has one advantage for all tokens.
func (m *measurement) scaled(i int, into []*torch.Gradients, entropy, kl *torch.Gradients) error {
	if err := m.unit.Zero(); err != nil {
		return err
	}
	if err := m.batch.Backward(i, []Task{{Into: m.unit}}, entropy, kl); err != nil {
		return err
	}
	for k := range m.names {
		a := 0.0
		switch {
		case i < 0:
		case k < m.report.Parts:
			a = m.advantages.Parts[k][i]
		case k == len(m.names)-1:
			a = m.advantages.Total[i]
		}
		if a == 0 {
			continue
		}
		if err := into[k].Add(m.unit, a); err != nil {
			return err
		}
	}
	return nil
}

// tokenwise takes a gradient for every part, with the advantages of the single tokens, and one at advantage 1 for the bands.
func (m *measurement) tokenwise(i int, into []*torch.Gradients, entropy, kl *torch.Gradients) error {
	var tasks []Task
	for k, part := range m.advantages.Tokens {
		place := k
		if k == m.report.Parts {
			place = len(m.names) - 1
		}
		var own []float32
		if i >= 0 {
			own = part[i]
		}
		if m.batch.InStep || slices.ContainsFunc(own, func(v float32) bool { return v != 0 }) {
			tasks = append(tasks, Task{own, into[place]})
		}
	}
	if m.sketches != nil {
		if err := m.unit.Zero(); err != nil {
			return err
		}
		tasks = append(tasks, Task{nil, m.unit})
	}
	return m.batch.Backward(i, tasks, entropy, kl)
}

// grams are the inner products of all pairs, per parameter: row by row of the upper triangle.
func (m *measurement) grams(gradients []*torch.Gradients) (grams, error) {
	products, err := torch.Products(gradients)
	if err != nil {
		return nil, err
	}
	for place, perParameter := range products {
		for p, v := range perParameter {
			if !statistics.Finite(v) {
				return nil, fmt.Errorf("an inner product (pair %d of the gradients of %v) at %s is %v: %w", place, m.names, m.report.parameters[p].name, v,
					torch.ErrNotFinite)
			}
		}
	}
	return products, nil
}

// bands puts one beside the cosine of every pair of which at least one is made of rewards.
func (m *measurement) bands() error {
	if m.sketches == nil {
		return nil
	}
	order := map[int][]int{}
	var ids []int
	for i, s := range m.batch.Samples {
		if order[s.Group] == nil {
			ids = append(ids, s.Group)
		}
		order[s.Group] = append(order[s.Group], i)
	}
	var groups [][]int
	for _, id := range ids {
		groups = append(groups, order[id])
	}
	b := newBands(m.sketches, groups, (m.options.Permutations+1)/2, m.options.Confidence, rand.New(rand.NewPCG(m.options.Seed, m.options.Step)))
	rewarded, dealt := map[int][]float64{}, map[int]permuted{}
	for k := range m.names {
		switch {
		case k < m.report.Parts:
			rewarded[k] = m.advantages.Parts[k]
		case k == len(m.names)-1:
			rewarded[k] = m.advantages.Total
		default:
			continue
		}
		dealt[k] = b.deal(rewarded[k])
	}
	m.report.bands = make([]Band, len(m.names)*(len(m.names)+1)/2)
	for i := range m.names {
		for j := i + 1; j < len(m.names); j++ {
			first, second := rewarded[i], rewarded[j]
			var band Band
			var ok bool
			switch {
			case first != nil && second != nil:
				band, ok = b.between(first, second, dealt[i], dealt[j])
			case first != nil || second != nil:
				term, part := i, j
				if first != nil {
					term, part = j, i
				}
				sketch, err := m.whole[term].Sketch(sketchDimension)
				if err != nil {
					return err
				}
				band, ok = b.interval(dealt[part].cosines(m.with(sketch), m.report.grams.total(term, term, len(m.names))))
			}
			if ok {
				m.report.bands[pair(i, j, len(m.names))] = band
			}
		}
	}
	return nil
}

// with are the inner products of every episode's gradient with another one.
func (m *measurement) with(sketch []float32) []float64 {
	out := make([]float64, len(m.sketches))
	for i, own := range m.sketches {
		for k, v := range own {
			out[i] += float64(v) * float64(sketch[k])
		}
	}
	return out
}
