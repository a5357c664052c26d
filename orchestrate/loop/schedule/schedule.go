// Package schedule holds learning rates. They follow from the number of steps done, training steps of reinforcement
// learning and optimizer steps of supervised fine-tuning: linear warm-up, then a constant, linear or cosine course
// (Loshchilov & Hutter, 2017, without restarts).
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
