package trainer

import (
	"math"

	"gyre/orchestrate/loop/analysis"
	"gyre/torch"
)

// shares measures, while the actor is updated, how much of the update each reward-spread bucket makes up. Episodes of a mini-batch are
// run bucket after bucket; each bucket's gradient goes through a buffer of its own before it joins the mini-batch's. This changes the order of
// additions (as another micro-batch size does), and nothing else. A nil *shares measures nothing.
type shares struct {
	buckets []analysis.Bucket
	of      []int              // bucket of each sample
	part    *torch.Gradients   // the bucket at hand
	sums    []*torch.Gradients // per bucket, the mean over the step's mini-batches
	weight  float64            // of one mini-batch
}

// newShares returns nil unless analysis.in_update asks for it.
func (u update) newShares(samples []*Sample, batches int) (*shares, error) {
	if a := u.config.Analysis; !a.Enabled || !a.InUpdate {
		return nil, nil
	}
	for _, x := range samples {
		if math.IsNaN(x.Spread) { // a replayed group may have one member
			u.log.Warnf("group %d has no reward spread: the update's shares are not measured", x.Group)
			return nil, nil
		}
	}
	buckets, err := u.buckets(samples)
	if err != nil {
		return nil, err
	}
	s := &shares{buckets: buckets, of: make([]int, len(samples)), weight: 1 / float64(batches)}
	for b, bucket := range buckets {
		for _, i := range bucket.Samples() {
			s.of[i] = b
		}
	}
	for range len(buckets) + 1 {
		g, err := torch.NewGradients(u.actor.model)
		if err != nil {
			s.close()
			return nil, err
		}
		s.sums = append(s.sums, g)
	}
	s.part, s.sums = s.sums[len(buckets)], s.sums[:len(buckets)]
	return s, nil
}

// backward runs one mini-batch and adds its gradient to into; run does the same for some of its samples.
func (s *shares) backward(indices []int, into *torch.Gradients, run func(indices []int, into *torch.Gradients) error) error {
	if s == nil {
		return run(indices, into)
	}
	for b := range s.buckets {
		var own []int
		for _, i := range indices {
			if s.of[i] == b {
				own = append(own, i)
			}
		}
		if len(own) == 0 {
			continue
		}
		if err := s.part.Zero(); err != nil {
			return err
		}
		if err := run(own, s.part); err != nil {
			return err
		}
		if err := s.sums[b].Add(s.part, s.weight); err != nil {
			return err
		}
		if err := into.Add(s.part, 1); err != nil {
			return err
		}
	}
	return nil
}

// into writes the metrics: per bucket, and for all of them together.
func (s *shares) into(metrics map[string]float64) error {
	if s == nil {
		return nil
	}
	if err := s.part.Zero(); err != nil {
		return err
	}
	norm := func(name string, g *torch.Gradients) error {
		square, _, err := g.Dot(g)
		metrics["update_share/"+name+"/norm"] = math.Sqrt(square)
		return err
	}
	for b, bucket := range s.buckets {
		p := "update_share/" + bucket.Name + "/"
		metrics[p+"sample_count"] = float64(len(bucket.Samples()))
		metrics[p+"reward_std_mean"] = bucket.Spread()
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
	if s == nil {
		return
	}
	for _, g := range append(s.sums, s.part) {
		if g != nil {
			g.Close()
		}
	}
}
