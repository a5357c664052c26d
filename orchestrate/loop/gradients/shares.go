package gradients

import (
	"context"

	"gyre/orchestrate/loop/train"
	"gyre/torch"
)

// Shares is a policy whose update is taken apart while it runs: how much of its gradient each bucket makes up. A
// mini-batch runs bucket after bucket; each bucket's gradient goes through a buffer of its own before it joins the
// mini-batch's. This changes the order of additions (as another micro-batch size does), and nothing else. Close it.
type Shares struct {
	train.Policy
	buckets []Bucket
	of      map[int]int // bucket of each row
	batches int         // mini-batches that the step has; those of later epochs are not measured
	seen    int         // of them
	own     *torch.Gradients
	sums    buffers // per bucket, the mean over the step's mini-batches
}

// ShareMetrics is what the shares of an update say, by bucket and for all of them.
type ShareMetrics struct {
	Shares map[string]Share `metric:"update_share/{bucket}"`
}

// Share is what a bucket makes up of the update.
type Share struct {
	Norm    float64  `metric:"norm" unit:"loss per parameter" doc:"norm of the bucket's part of the loss gradient, all terms together, averaged over the step's mini-batches (analysis.in_update)"`
	Samples *float64 `metric:"sample_count" doc:"its episodes"`
	Std     *float64 `metric:"reward_std_mean" unit:"reward" doc:"mean of its groups' reward standard deviations"`
}

// NewShares measures the update of a policy on a batch that is cut into so many mini-batches.
func NewShares(policy *train.Learner, buckets []Bucket, batches int) (*Shares, error) {
	s := &Shares{Policy: policy, buckets: buckets, of: map[int]int{}, batches: batches}
	for b, bucket := range buckets {
		for _, row := range bucket.Rows() {
			s.of[row] = b
		}
	}
	all, err := newBuffers(policy.Model, len(buckets)+1, torch.NewGradients)
	if err != nil {
		return nil, err
	}
	s.own, s.sums = all[len(buckets)], all[:len(buckets)]
	return s, nil
}

// Backward implements train.Policy. All columns share one buffer, as in an update.
func (s *Shares) Backward(ctx context.Context, b *train.Batch, o train.Objective,
	columns []train.Column) (losses train.Losses, err error) {
	if s.seen == s.batches {
		return s.Policy.Backward(ctx, b, o, columns)
	}
	s.seen++
	rows := make([][]int, len(s.buckets))
	for i, row := range b.Rows {
		rows[s.of[row]] = append(rows[s.of[row]], i)
	}
	into := columns[0].Into
	for bucket, own := range rows {
		if len(own) == 0 {
			continue
		}
		if err := s.own.Zero(); err != nil {
			return losses, err
		}
		part := Subject{Batch: b, Columns: columns}.take(own)
		for i := range part.Columns {
			part.Columns[i].Into = s.own
		}
		found, err := s.Policy.Backward(ctx, part.Batch, o, part.Columns)
		if err != nil {
			return losses, err
		}
		losses.Add(found)
		if err := s.sums[bucket].Add(s.own, 1/float64(s.batches)); err != nil {
			return losses, err
		}
		if err := into.Add(s.own, 1); err != nil {
			return losses, err
		}
	}
	return losses, nil
}

// Metrics are the norms of the shares, and of their sum.
func (s *Shares) Metrics() (m ShareMetrics, err error) {
	m.Shares = map[string]Share{}
	if err := s.own.Zero(); err != nil {
		return m, err
	}
	for b, bucket := range s.buckets {
		norm, err := s.sums[b].Norm()
		if err == nil {
			err = s.own.Add(s.sums[b], 1)
		}
		if err != nil {
			return m, err
		}
		m.Shares[bucket.Name] = Share{norm, new(float64(len(bucket.Rows()))), new(bucket.MeanStd())}
	}
	norm, err := s.own.Norm()
	m.Shares["all"] = Share{Norm: norm}
	return m, err
}

// Close frees the buffers; of nil it does nothing.
func (s *Shares) Close() {
	if s != nil {
		append(s.sums, s.own).close()
	}
}
