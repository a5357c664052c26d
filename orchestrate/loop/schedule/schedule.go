package schedule

import (
	"fmt"
	"math"
)

// Schedule is one learning-rate course.
type Schedule struct {
	Kind   string  // constant | linear | cosine
	Peak   float64 // the rate after warm-up
	Warmup int     // steps of linear warm-up; the first one already learns, at Peak / Warmup
	Total  int     // steps in all, read by linear and cosine
	Floor  float64 // the last step's rate as a fraction of Peak
}

// New checks the parameters.
func New(s Schedule) (Schedule, error) {
	switch {
	case s.Kind != "constant" && s.Kind != "linear" && s.Kind != "cosine":
		return s, fmt.Errorf("schedule: %q is none of constant, linear, cosine", s.Kind)
	case s.Warmup < 0 || s.Floor < 0 || s.Floor > 1 || !(s.Peak >= 0):
		return s, fmt.Errorf("schedule: rate %g, warm-up %d and floor %g must be >= 0, the floor <= 1", s.Peak,
			s.Warmup, s.Floor)
	case s.Kind != "constant" && s.Total < 1:
		return s, fmt.Errorf("schedule: %s needs the total number of steps, got %d", s.Kind, s.Total)
	}
	return s, nil
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
