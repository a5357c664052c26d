package trainer

import (
	"context"
	"math"
	"slices"

	"gyre/orchestrate/loop/analysis"
	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/run/metrics"
	"gyre/torch"
)

// shares measures, while the actor is updated, how much of the update each reward-spread bucket makes up. Episodes of a mini-batch are
// run bucket after bucket; each bucket's gradient goes through a buffer of its own before it joins the mini-batch's. This changes the order of
// additions (as another micro-batch size does), and nothing else. It stands before the policy during the first epoch.
type shares struct {
	train.Policy
	left    int // mini-batches of the first epoch
	buckets []analysis.Bucket
	of      []int              // bucket of each sample
	part    *torch.Gradients   // the bucket at hand
	sums    []*torch.Gradients // per bucket, the mean over the step's mini-batches
	weight  float64            // of one mini-batch
}

// watchShares is nil unless analysis.in_update asks for it.
func (e *equipment) watchShares() func(s *Step, actor train.Policy) (train.Policy, func(metrics.Line) error, error) {
	if a := e.config.Analysis; !a.Enabled || !a.InUpdate {
		return nil
	}
	return func(step *Step, actor train.Policy) (train.Policy, func(metrics.Line) error, error) {
		for i, std := range step.Chosen.RewardStd {
			if math.IsNaN(std) { // a replayed group may have one member
				e.log.Warnf("group %d has no reward standard deviation: the update's shares are not measured", step.Chosen.Episodes[i].Group)
				return actor, func(metrics.Line) error { return nil }, nil
			}
		}
		s, err := e.newShares(step.Chosen, actor)
		if err != nil {
			return nil, nil, err
		}
		return s, s.finish, nil
	}
}

func (e *equipment) newShares(chosen Selection, actor train.Policy) (*shares, error) {
	buckets, err := e.buckets(chosen)
	if err != nil {
		return nil, err
	}
	batches := len(train.MiniBatches(chosen.Batch.Len(), e.config.Actor.MiniBatch))
	s := &shares{Policy: actor, left: batches, buckets: buckets, of: make([]int, chosen.Batch.Len()), weight: 1 / float64(batches)}
	for b, bucket := range buckets {
		for _, i := range bucket.Samples() {
			s.of[i] = b
		}
	}
	for range len(buckets) + 1 {
		g, err := torch.NewGradients(e.actor.Model)
		if err != nil {
			s.close()
			return nil, err
		}
		s.sums = append(s.sums, g)
	}
	s.part, s.sums = s.sums[len(buckets)], s.sums[:len(buckets)]
	return s, nil
}

// Backward runs one mini-batch.
func (s *shares) Backward(ctx context.Context, b *train.Batch, o train.Objective, columns []train.Column) (sum train.Losses, err error) {
	if s.left == 0 {
		return s.Policy.Backward(ctx, b, o, columns)
	}
	s.left--
	columns = slices.Clone(columns)
	for i := range columns {
		columns[i].Into = s.part
	}
	for k := range s.buckets {
		var own []int
		for i, row := range b.Rows {
			if s.of[row] == k {
				own = append(own, i)
			}
		}
		if len(own) == 0 {
			continue
		}
		if err := s.part.Zero(); err != nil {
			return sum, err
		}
		losses, err := s.Policy.Backward(ctx, b.Take(own), o, columns)
		if err != nil {
			return sum, err
		}
		sum.Add(losses)
		if err := s.sums[k].Add(s.part, s.weight); err != nil {
			return sum, err
		}
		if err := s.Gradients().Add(s.part, 1); err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// finish writes the metrics, per bucket and for all of them together, and frees the buffers.
func (s *shares) finish(line metrics.Line) error {
	defer s.close()
	if err := s.part.Zero(); err != nil {
		return err
	}
	norm := func(name string, g *torch.Gradients) error {
		square, _, err := g.Dot(g)
		line["update_share/"+name+"/norm"] = math.Sqrt(square)
		return err
	}
	for b, bucket := range s.buckets {
		p := "update_share/" + bucket.Name + "/"
		line[p+"sample_count"] = float64(len(bucket.Samples()))
		line[p+"reward_std_mean"] = bucket.Spread()
		if err := norm(bucket.Name, s.sums[b]); err != nil {
			return err
		}
		if err := s.part.Add(s.sums[b], 1); err != nil {
			return err
		}
	}
	return norm("all", s.part)
}

func (s *shares) close() {
	for _, g := range append(s.sums, s.part) {
		if g != nil {
			g.Close()
		}
	}
}
