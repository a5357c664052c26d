// Package schedule holds the constants of a loss and an optimizer that change from step to step. Learning rates follow
// from the number of steps done, training steps of reinforcement learning and optimizer steps of supervised
// fine-tuning: linear warm-up, then a constant, linear or cosine course (Loshchilov & Hutter, 2017, without restarts).
// The coefficient of the entropy bonus may follow the entropy.
package schedule

import "math"

// Schedule is one learning-rate course.
type Schedule struct {
	Kind   string  // constant | linear | cosine
	Peak   float64 // the rate after warm-up
	Warmup int     // steps of linear warm-up; the first one already learns, at Peak / Warmup
	Total  int     // steps in all, read by linear and cosine
	Floor  float64 // the last step's rate as a fraction of Peak
}

// At returns the rate of the step that follows so many finished ones (0 for the first). It depends on nothing
// else, so a resumed run needs no state. Steps beyond Total keep the last rate.
func (s Schedule) At(step int) float64 {
	if step < s.Warmup {
		return s.Peak * float64(step+1) / float64(s.Warmup)
	}
	last := s.Total - 1 - s.Warmup // decay steps: the last of them reaches the floor
	done := 0.0
	if last > 0 {
		done = min(float64(step-s.Warmup)/float64(last), 1)
	}
	switch s.Kind {
	case "linear":
		return s.Peak * (1 - (1-s.Floor)*done)
	case "cosine":
		return s.Peak * (s.Floor + (1-s.Floor)*(1+math.Cos(math.Pi*done))/2)
	}
	return s.Peak
}

// EntropyControl is a coefficient of the entropy bonus that follows a target (Skywork-OR1, arXiv 2505.22312, 3.2.5): it
// rises by a step while the entropy is below the target and falls by one while it is above, between 0 and a bound, and
// counts only while the entropy is at most the target. The entropy is that of the update before.
type EntropyControl struct {
	Coef    float64  `json:"coef"`
	Entropy *float64 `json:"entropy,omitempty"` // nats per token; nil: nothing was measured yet
}

// Bonus is the coefficient of the coming update.
func (e *EntropyControl) Bonus(target float64) float64 {
	if e.Entropy != nil && *e.Entropy > target {
		return 0
	}
	return e.Coef
}

// Measured adapts the coefficient to the entropy that an update found.
func (e *EntropyControl) Measured(entropy, target, step, most float64) {
	e.Entropy = &entropy
	switch {
	case entropy < target:
		e.Coef = min(e.Coef+step, most)
	case entropy > target:
		e.Coef = max(e.Coef-step, 0)
	}
}
