package gradients

import (
	"fmt"
	"slices"

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
func (m *measurement) paper(s Subject, r *Result, rows []int, o Options) error {
	gradient, err := m.empty(&m.bucket, len(s.Columns))
	if err != nil {
		return err
	}
	own, mini := len(rows)/o.PaperRanks, o.MiniBatch/o.PaperRanks // rows of a rank, and of them in a mini-batch
	minis, micros := 0.0, 0.0
	norms, losses := make([]float64, len(s.Columns)), make([]float64, len(s.Columns))
	for begin := 0; begin < own; begin += mini {
		if err := gradient.zero(); err != nil {
			return err
		}
		for rank := range o.PaperRanks {
			for micro := range slices.Chunk(rows[rank*own:][begin:min(begin+mini, own)], o.PaperMicroBatch) {
				found, err := m.microBatch(s.take(micro), gradient, o)
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
			norm, err := g.Norm()
			if err == nil && !statistics.Finite(norm) {
				err = fmt.Errorf("the %s gradient is not finite: %w", s.Columns[i].Name, torch.ErrNotFinite)
			}
			if err != nil {
				return err
			}
			norms[i] += norm
		}
		minis++
	}
	for i, c := range s.Columns {
		r.put(c.Name, norms[i]/minis, losses[i]/micros)
	}
	return nil
}

// microBatch adds the gradients of a micro-batch under its own normaliser, divided by the micro-batches of a full
// mini-batch, and gives its losses.
func (m *measurement) microBatch(s Subject, into buffers, o Options) ([]float64, error) {
	scale := float64(o.PaperMicroBatch) / float64(o.MiniBatch/o.PaperRanks) / float64(o.PaperRanks)
	s.Batch.Weigh(o.Aggregation, o.Width)
	for _, weights := range s.Batch.Weights {
		for t := range weights {
			weights[t] *= float32(scale)
		}
	}
	losses, err := s.backward(m.ctx, into)
	for i := range losses {
		losses[i] /= scale
	}
	return losses, err
}
