package analysis

import (
	"context"
	"math"
	"slices"

	"gyre/internal/statistics"
)

// kept are the gradients that inner products are taken of at the end: of each bucket, and last of all of them; by component.
type kept struct{ buckets []map[string]vector }

func newKept(n int) *kept {
	k := &kept{buckets: make([]map[string]vector, n)}
	for i := range k.buckets {
		k.buckets[i] = map[string]vector{}
	}
	return k
}

// trace is what remains of a group's gradients.
type trace struct {
	squares map[string]float64 // not filled where the vectors are the gradients themselves
	vectors map[string]vector
}

// fewVectors are compared with one at a time: each is read once, and little is computed that nobody asked for.
const fewVectors = 7

// exact measures a set of components: bucket after bucket and group after group, so that every episode is met once.
//
//	group ──▶ bucket ──▶ all
func (m *measurement) exact(components []string, p *pool, k *kept) error {
	last := len(m.results) - 1
	var whole buffers
	var all []trace
	for i := range m.results[:last] {
		r := &m.results[i]
		bucket, traces, err := m.bucket(r, components, p)
		if err != nil {
			return err
		}
		if err := m.settle(r, bucket, components); err != nil {
			return err
		}
		if len(traces) == 1 {
			for _, name := range components {
				traces[0].squares[name] = r.Norms[name] * r.Norms[name]
			}
		}
		if err := m.separate(r, traces, bucket, components, k.buckets[i]); err != nil {
			return err
		}
		all = append(all, traces...)
		if whole == nil && !m.plan.Keep {
			whole = bucket
			continue
		}
		if whole == nil {
			if whole, err = p.take(); err != nil {
				return err
			}
		}
		if err := whole.add(bucket); err != nil {
			return err
		}
		if !m.plan.Keep {
			p.give(bucket)
		}
	}
	r := &m.results[last]
	if components[0] == m.components[0] {
		for _, part := range m.results[:last] {
			for name, v := range part.Losses {
				r.Losses[name] += v
			}
		}
	}
	if err := m.settle(r, whole, components); err != nil {
		return err
	}
	return m.separate(r, all, whole, components, k.buckets[last])
}

// bucket measures one bucket's gradients. Every pass over a buffer counts where models are large and groups are short, so a bucket of one group
// is that group, and the squares of its trace are left to the caller.
func (m *measurement) bucket(r *Result, components []string, p *pool) (buffers, []trace, error) {
	if m.options.Statistics && len(r.Groups) == 1 {
		part, t, err := m.group(r.Groups[0], p, r, components)
		return part, []trace{t}, err
	}
	bucket, err := p.take()
	if err != nil {
		return nil, nil, err
	}
	if !m.options.Statistics {
		return bucket, nil, m.backward(r.Bucket.Samples(), components, bucket, r)
	}
	var traces []trace
	for _, g := range r.Groups {
		part, t, err := m.group(g, p, r, components)
		if err != nil {
			return nil, nil, err
		}
		if !m.plan.Keep {
			if t.squares, err = part.squares(); err != nil {
				return nil, nil, err
			}
		}
		if err := bucket.add(part); err != nil {
			return nil, nil, err
		}
		if !m.plan.Keep {
			p.give(part)
		}
		traces = append(traces, t)
	}
	return bucket, traces, nil
}

// group measures one group's gradients and leaves a trace, whose squares are the caller's to fill.
func (m *measurement) group(g Group, p *pool, r *Result, components []string) (part buffers, t trace, err error) {
	if part, err = p.take(); err != nil {
		return nil, t, err
	}
	if err := m.backward(g.Samples, components, part, r); err != nil {
		return nil, t, err
	}
	t = trace{squares: map[string]float64{}, vectors: map[string]vector{}}
	for _, name := range components { // in their order: sketches take all ranks
		g := part[name]
		v := vector{full: g}
		if !m.plan.Keep {
			sketch, err := g.Sketch(sketchDimension)
			if err != nil {
				return nil, t, err
			}
			v = vector{sketch: sketch}
		}
		t.vectors[name] = v
	}
	return part, t, nil
}

// backward adds the episodes' gradients to a buffer, and their losses to the result unless an earlier pass did.
func (m *measurement) backward(samples []int, components []string, into buffers, r *Result) error {
	if m.ctx.Err() != nil {
		return context.Cause(m.ctx)
	}
	stats, err := m.batch.Backward(samples, into.into(m.batch.Components))
	if err != nil {
		return err
	}
	if components[0] == m.components[0] {
		for name, v := range m.batch.losses(stats) {
			r.Losses[name] += v
		}
	}
	return nil
}

// separate splits a finished gradient's squared norms into signal and noise, and keeps the gradient for the comparisons.
func (m *measurement) separate(r *Result, traces []trace, gradient buffers, components []string, keep map[string]vector) error {
	if !m.options.Statistics {
		return nil
	}
	if r.GroupNorms == nil {
		for range traces {
			r.GroupNorms = append(r.GroupNorms, map[string]float64{})
		}
	}
	for _, name := range components {
		v := vector{full: gradient[name]}
		if !m.plan.Keep {
			parts := make([]vector, len(traces))
			for i, t := range traces {
				parts[i] = t.vectors[name]
			}
			v = sum(parts)
		}
		keep[name] = v
		var squares, products []float64
		for few := range slices.Chunk(traces, fewVectors) {
			list := []vector{v}
			for _, t := range few {
				list = append(list, t.vectors[name])
			}
			g, err := newGram(list)
			if err != nil {
				return err
			}
			for i, t := range few {
				square, product := t.squares[name], g.at(0, i+1)
				if m.plan.Keep {
					square = g.at(i+1, i+1)
				} else { // only the part with the other groups is taken from the sketch
					product += square - g.at(i+1, i+1)
				}
				if err := finite(name, square); err != nil {
					return err
				}
				r.GroupNorms[len(squares)][name] = math.Sqrt(square)
				squares, products = append(squares, square), append(products, product)
			}
		}
		square := r.Norms[name] * r.Norms[name]
		if s, ok := Separate(square, squares, products, m.options.Confidence); ok {
			r.Signals[name] = s
		}
	}
	return nil
}

// compare takes the cosines that need gradients of different buckets, or of components that were measured one after the other.
func (m *measurement) compare(k *kept) ([]Pair, error) {
	last := len(m.results) - 1
	grams := map[string]gram{} // per component, of the buckets and all of them
	for _, name := range m.components {
		var list []vector
		for _, bucket := range k.buckets {
			list = append(list, bucket[name])
		}
		g, err := newGram(list)
		if err != nil {
			return nil, err
		}
		grams[name] = g
	}
	var pairs []Pair
	for i := range m.results {
		r := &m.results[i]
		for c, name := range m.components {
			square := r.Norms[name] * r.Norms[name]
			if i < last {
				whole := m.results[last].Norms[name]
				if v, ok := statistics.Cosine(grams[name].at(i, last), square, whole*whole); ok {
					r.Whole[name] = v
				}
			}
			for _, other := range m.components[c+1:] {
				if !m.options.LowMemory {
					break // settle has taken them
				}
				product, err := k.buckets[i][name].dot(k.buckets[i][other])
				if err != nil {
					return nil, err
				}
				if v, ok := statistics.Cosine(product, square, r.Norms[other]*r.Norms[other]); ok {
					r.Cosines[name+"_"+other] = v
				}
			}
		}
		for j := i + 1; j < last; j++ {
			for _, name := range m.components {
				other, product := m.results[j], grams[name].at(i, j)
				v, ok := statistics.Cosine(product, r.Norms[name]*r.Norms[name], other.Norms[name]*other.Norms[name])
				if !ok {
					continue
				}
				// Buckets are independent draws: their inner product has no bias, only the norms have.
				pair := Pair{First: r.Name, Second: other.Name, Component: name, Cosine: v, Unbiased: math.NaN()}
				if c, ok := statistics.Cosine(product, r.Signals[name].Square, other.Signals[name].Square); ok {
					pair.Unbiased = c
				}
				pairs = append(pairs, pair)
			}
		}
	}
	return pairs, nil
}
