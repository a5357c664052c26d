package gradients

import (
	"fmt"
	"math"

	"gyre/internal/statistics"
	"gyre/torch"
)

// paper measures a subject as RAGEN 2 does (its actor and gradient reporter, read as a specification), so that
// published plots can be compared. It is not the gradient of the bucket:
//
//   - The rows of a bucket, in batch order, are cut to a multiple of the ranks and dealt to them in equal runs; each
//     rank cuts its rows into mini-batches, and those into micro-batches.
//   - A micro-batch's loss is its own mean, divided by the number of micro-batches of a FULL mini-batch, also in a
//     short one: the fewer rows, the smaller the norm. Ranks are averaged.
//   - What is reported is the mean over mini-batches of their gradients' norms, and over micro-batches of their losses.
//   - "all" is measured on its own.
//
// Its random duplication of rows (to fill mini-batches) and its reordering of rows by length are left out.
func (m *measurement) paper(s Subject) error {
	o := m.options
	if o.MiniBatch%o.Ranks != 0 || o.MiniBatch/o.Ranks%o.MicroBatch != 0 {
		return fmt.Errorf("the paper profile deals mini-batches of %d rows to %d ranks in micro-batches of %d: "+
			"they do not divide", o.MiniBatch, o.Ranks, o.MicroBatch)
	}
	gradient, err := m.take(s)
	if err != nil {
		return err
	}
	defer m.give(gradient)
	var measured []*Result
	for i, r := range m.results {
		rows := r.Rows()
		rows = rows[:len(rows)-len(rows)%o.Ranks]
		if len(rows) == 0 {
			if i == len(m.results)-1 {
				return fmt.Errorf("%d rows are fewer than %d ranks", r.Samples, o.Ranks)
			}
			continue // RAGEN skips such a bucket
		}
		kept := map[int]bool{}
		for _, row := range rows {
			kept[row] = true
		}
		r.count(s.Batch, func(row int) bool { return kept[row] })
		if err := m.paperBucket(r, s, rows, gradient); err != nil {
			return err
		}
		measured = append(measured, r)
	}
	m.results = measured
	return nil
}

func (m *measurement) paperBucket(r *Result, s Subject, rows []int, gradient buffers) error {
	o := m.options
	share, mini := len(rows)/o.Ranks, o.MiniBatch/o.Ranks
	minis, micros := 0.0, 0.0
	norms, losses := make([]float64, len(s.Columns)), make([]float64, len(s.Columns))
	for begin := 0; begin < share; begin += mini {
		if err := gradient.zero(); err != nil {
			return err
		}
		for rank := range o.Ranks {
			own := rows[rank*share : (rank+1)*share]
			own = own[begin:min(begin+mini, share)]
			for at := 0; at < len(own); at += o.MicroBatch {
				found, err := m.paperMicro(s.take(own[at:min(at+o.MicroBatch, len(own))]), gradient)
				if err != nil {
					return err
				}
				for i, loss := range found {
					losses[i] += loss
				}
				micros++
			}
		}
		for i, g := range gradient {
			square, _, err := g.Dot(g)
			if err != nil {
				return err
			}
			if !statistics.Finite(square) {
				return fmt.Errorf("the %s gradient is not finite: %w", s.Columns[i].Name, torch.ErrNotFinite)
			}
			norms[i] += math.Sqrt(square)
		}
		minis++
	}
	for i, c := range s.Columns {
		put(&r.Norms, c.Name, norms[i]/minis)
		r.addLoss(c.Name, losses[i]/micros)
	}
	return nil
}

// paperMicro adds the gradients of a micro-batch under its own normaliser, divided by the micro-batches of a full
// mini-batch, and gives its losses.
func (m *measurement) paperMicro(s Subject, into buffers) ([]float64, error) {
	o := m.options
	scale := float64(o.MicroBatch) / float64(o.MiniBatch/o.Ranks) / float64(o.Ranks)
	if err := s.Batch.Weigh(o.Aggregation, o.Width); err != nil {
		return nil, err
	}
	for _, weights := range s.Batch.Weights {
		for t := range weights {
			weights[t] *= float32(scale)
		}
	}
	found, err := s.backward(m.ctx, into)
	losses := make([]float64, len(s.Columns))
	for i, c := range found.Columns {
		losses[i] = c.Loss / scale
	}
	return losses, err
}
