package rundir

import (
	"math"
	"strings"

	"gyre/internal/statistics"
)

// Outcome sums a run up: how it ended, how well it did, and what it took. A number that is not known is NaN.
type Outcome struct {
	Status string // running, finished, stopped_early, interrupted, failed; "" where run.json does not tell
	Reason string
	Rule   string // of an early stop: the metric early_stopped/RULE that was set
	Steps  int    // training steps done

	Course        // of the validation success
	Return Course // of the validation return

	Spread, Entropy, GradNorm float64 // at the last step that has them
	Train, Eval, Total        float64 // seconds in steps, in validations, in both and in checkpoints
	Phases                    map[string]float64
}

// Course sums up what validations say of one figure, the mean over tags.
type Course struct {
	Points   []Point
	Peak     float64
	PeakStep int
	Last     float64
	LastMean float64 // over the last LastValidations validations
	Baseline float64 // before training
}

// LastValidations are averaged for LastMean.
const LastValidations = 3

func courseOf(points []Point) Course {
	nan := math.NaN()
	c := Course{Points: points, Peak: nan, Last: nan, LastMean: nan, Baseline: nan}
	for i, p := range points {
		if p.Step == 0 {
			c.Baseline = p.Value
		}
		if i == 0 || p.Value > c.Peak {
			c.Peak, c.PeakStep = p.Value, p.Step
		}
	}
	if n := len(points); n > 0 {
		c.Last = points[n-1].Value
		c.LastMean = statistics.Mean(values(points[max(0, n-LastValidations):]))
	}
	return c
}

// Outcome of what the run has logged so far.
func (r *Run) Outcome() Outcome {
	nan := math.NaN()
	final := func(key string) float64 {
		if all := r.Series(key); len(all) > 0 {
			return all[len(all)-1].Value
		}
		return nan
	}
	o := Outcome{Course: courseOf(r.Mean("val-env/*/success")), Return: courseOf(r.Mean("val-env/*/episodic_return")),
		Spread: final("rollout/in_group_reward_std"), Entropy: final("actor/entropy"), GradNorm: final("actor/grad_norm"),
		Phases: map[string]float64{}}
	if len(r.Records) == 0 {
		o.Train, o.Eval, o.Total = nan, nan, nan
		return o
	}
	if r.Info != nil {
		o.Status, o.Reason = r.Info.Status, r.Info.Reason
		if o.Status == "done" {
			o.Status = "finished"
		}
	}
	last := r.Records[len(r.Records)-1]
	o.Steps = last.Step
	for key, v := range last.Values {
		if rule, ok := strings.CutPrefix(key, "early_stopped/"); ok && v == 1.0 {
			o.Rule = rule
		}
	}
	for _, key := range r.Keys("timing_s/*") {
		o.Phases[strings.TrimPrefix(key, "timing_s/")] = statistics.Sum(values(r.Series(key)))
	}
	o.Train, o.Eval = o.Phases["step"], o.Phases["testing"]
	o.Total = o.Train + o.Eval + o.Phases["checkpoint"]
	return o
}

func values(points []Point) []float64 {
	out := make([]float64, len(points))
	for i, p := range points {
		out[i] = p.Value
	}
	return out
}
