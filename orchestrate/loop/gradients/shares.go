package gradients

import (
	"context"
	"math"

	"gyre/orchestrate/loop/train"
	"gyre/torch"
)

// Shares is a policy whose update is taken apart while it runs: how much of its gradient each bucket makes up. A
// mini-batch runs bucket after bucket; each bucket's gradient goes through a buffer of its own before it joins the
// mini-batch's. This changes the order of additions (as another micro-batch size does), and nothing else. Close it.
type Shares struct {
	train.Policy
	buckets []Bucket
	of      []int // bucket of each row
	batches int   // that the step has; those of later epochs are not measured
	seen    int   // of them
	part    *torch.Gradients
	sums    buffers // per bucket, the mean over the step's mini-batches
}

// ShareMetrics is what the shares of an update say, by bucket and for all of them.
type ShareMetrics struct {
	Shares map[string]Share `metric:"update_share/{bucket}"`
}

// Share is the part of the update that a bucket makes up.
type Share struct {
	Norm    float64  `metric:"norm" unit:"loss per parameter" doc:"norm of the bucket's part of the loss gradient, all terms together, averaged over the step's mini-batches (analysis.in_update)"`
	Samples *float64 `metric:"sample_count" doc:"its episodes"`
	Std     *float64 `metric:"reward_std_mean" unit:"reward" doc:"mean of its groups' reward standard deviations"`
}

// NewShares measures the update of a policy on a batch that is cut into so many mini-batches.
func NewShares(policy train.Policy, model *torch.Model, buckets []Bucket, rows, batches int) (*Shares, error) {
	s := &Shares{Policy: policy, buckets: buckets, of: make([]int, rows), batches: batches}
	for b, bucket := range buckets {
		for _, row := range bucket.Rows() {
			s.of[row] = b
		}
	}
	all, err := newBuffers(model, len(buckets)+1, torch.NewGradients)
	if err != nil {
		return nil, err
	}
	s.part, s.sums = all[len(buckets)], all[:len(buckets)]
	return s, nil
}

// Backward implements train.Policy. All columns share one buffer, as in an update.
func (s *Shares) Backward(ctx context.Context, b *train.Batch, o train.Objective,
	columns []train.Column) (losses train.Losses, err error) {
	if s.seen == s.batches {
		return s.Policy.Backward(ctx, b, o, columns)
	}
	s.seen++
	into := columns[0].Into
	for bucket := range s.buckets {
		var rows []int
		for i := range b.Len() {
			row := i
			if b.Rows != nil {
				row = b.Rows[i]
			}
			if s.of[row] == bucket {
				rows = append(rows, i)
			}
		}
		if len(rows) == 0 {
			continue
		}
		if err := s.part.Zero(); err != nil {
			return losses, err
		}
		own := Subject{Batch: b, Columns: columns}.take(rows)
		for i := range own.Columns {
			own.Columns[i].Into = s.part
		}
		found, err := s.Policy.Backward(ctx, own.Batch, o, own.Columns)
		if err != nil {
			return losses, err
		}
		losses.Add(found)
		if err := s.sums[bucket].Add(s.part, 1/float64(s.batches)); err != nil {
			return losses, err
		}
		if err := into.Add(s.part, 1); err != nil {
			return losses, err
		}
	}
	return losses, nil
}

// Metrics are the norms of the shares, and of all of them together.
func (s *Shares) Metrics() (ShareMetrics, error) {
	m := ShareMetrics{map[string]Share{}}
	if err := s.part.Zero(); err != nil {
		return m, err
	}
	norm := func(g *torch.Gradients) (float64, error) {
		square, _, err := g.Dot(g)
		return math.Sqrt(square), err
	}
	for b, bucket := range s.buckets {
		own, err := norm(s.sums[b])
		if err == nil {
			err = s.part.Add(s.sums[b], 1)
		}
		if err != nil {
			return m, err
		}
		samples, std := float64(len(bucket.Rows())), bucket.MeanStd()
		m.Shares[bucket.Name] = Share{own, &samples, &std}
	}
	all, err := norm(s.part)
	m.Shares["all"] = Share{Norm: all}
	return m, err
}

// Close frees the buffers; of nil it does nothing.
func (s *Shares) Close() {
	if s != nil {
		append(s.sums, s.part).close()
	}
}
