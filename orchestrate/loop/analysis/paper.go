package analysis

import (
	"context"
	"fmt"
	"math"

	"gyre/torch"
)

// paper measures a set of components as RAGEN 2 does (its actor and gradient reporter, read as a specification), so that published
// plots can be compared. It is not the gradient of the bucket:
//
//   - The rows of a bucket, in batch order, are cut to a multiple of the ranks and dealt to them in equal runs; each rank cuts its rows into
//     mini-batches, and those into micro-batches.
//   - A micro-batch's loss is its own mean, divided by the number of micro-batches of a FULL mini-batch, also in a short one: the fewer
//     rows, the smaller the norm. Ranks are averaged.
//   - What is reported is the mean over mini-batches of their gradients' norms, and over micro-batches of their losses.
//   - "all" is measured on its own.
//
// Its random duplication of rows (to fill mini-batches) and its reordering of rows by length are left out.
func (m *measurement) paper(components []string, p *pool, _ *kept) error {
	o := m.options
	if o.MiniBatch%o.Ranks != 0 || o.MiniBatch/o.Ranks%o.MicroBatch != 0 {
		return fmt.Errorf("the paper profile deals mini-batches of %d rows to %d ranks in micro-batches of %d: they do not divide", o.MiniBatch, o.Ranks, o.MicroBatch)
	}
	gradient, err := p.take()
	if err != nil {
		return err
	}
	defer p.give(gradient)
	var measured []Result
	last := len(m.results) - 1
	for i, r := range m.results {
		rows := m.results[i].Bucket.Samples()
		rows = rows[:len(rows)-len(rows)%o.Ranks]
		if len(rows) == 0 {
			if i == last {
				return fmt.Errorf("%d rows are fewer than %d ranks", r.Samples, o.Ranks)
			}
			continue // RAGEN skips such a bucket
		}
		m.trim(&r, rows)
		if err := m.paperBucket(&r, rows, components, gradient); err != nil {
			return err
		}
		measured = append(measured, r)
	}
	m.results = measured
	return nil
}

// trim counts only the rows that are left.
func (m *measurement) trim(r *Result, rows []int) {
	kept := map[int]bool{}
	r.Samples, r.Tokens = len(rows), 0
	for _, i := range rows {
		kept[i] = true
		r.Tokens += m.batch.Tokens[i]
	}
	r.Fraction = float64(r.Samples) / float64(len(m.batch.Tokens))
	r.Low, r.High = math.Inf(1), math.Inf(-1)
	for _, g := range r.Groups {
		for _, i := range g.Samples {
			if kept[i] {
				r.Low, r.High = math.Min(r.Low, g.Spread), math.Max(r.High, g.Spread)
			}
		}
	}
}

func (m *measurement) paperBucket(r *Result, rows []int, components []string, gradient buffers) error {
	o := m.options
	share, mini := len(rows)/o.Ranks, o.MiniBatch/o.Ranks
	scale := float64(o.MicroBatch) / float64(mini) / float64(o.Ranks)
	steps, micros := 0.0, 0.0
	norms, losses := map[string]float64{}, map[string]float64{}
	for begin := 0; begin < share; begin += mini {
		if m.ctx.Err() != nil {
			return context.Cause(m.ctx)
		}
		if err := gradient.zero(); err != nil {
			return err
		}
		for rank := range o.Ranks {
			own := rows[rank*share : (rank+1)*share]
			own = own[begin:min(begin+mini, share)]
			for at := 0; at < len(own); at += o.MicroBatch {
				var stats torch.PolicyStats
				stats, err := m.batch.Alone(own[at:min(at+o.MicroBatch, len(own))], scale, gradient.into(m.batch.Components))
				if err != nil {
					return err
				}
				for name, v := range m.batch.losses(stats) {
					losses[name] += v
				}
				micros++
			}
		}
		squares, err := gradient.squares()
		if err != nil {
			return err
		}
		for _, name := range components {
			norms[name] += math.Sqrt(squares[name])
		}
		steps++
	}
	for _, name := range components {
		r.Norms[name] = norms[name] / steps
	}
	for name, v := range losses {
		r.Losses[name] = v / micros
	}
	return nil
}
