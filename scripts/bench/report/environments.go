package report

import (
	"fmt"
	"strings"
)

// What Gyre's environments must reach beside RAGEN's, in times its speed.
const (
	resetFloor = 50
	stepFloor  = 20
)

// Environment is how long one takes to begin an episode and to play one action, its text included, repeat by repeat.
type Environment struct {
	Tag   string  `json:"tag"`
	Gyre  []Times `json:"gyre"`
	RAGEN []Times `json:"ragen,omitempty"`
	// Failure says why RAGEN's was not measured; "" also where it has none.
	Failure string `json:"failure,omitempty"`
}

// Times are means in seconds.
type Times struct {
	Reset float64 `json:"reset"`
	Step  float64 `json:"step"`
}

func reset(t Times) float64 { return t.Reset }
func step(t Times) float64  { return t.Step }

// medianOf is the median of one of the times, in seconds.
func medianOf(times []Times, which func(Times) float64) float64 {
	values := make([]float64, len(times))
	for i, t := range times {
		values[i] = which(t)
	}
	return median(values)
}

// faster is how many times faster Gyre is, repeat by repeat, then the median.
func (e Environment) faster(which func(Times) float64) float64 {
	ratios := make([]float64, min(len(e.Gyre), len(e.RAGEN)))
	for i := range ratios {
		ratios[i] = which(e.RAGEN[i]) / which(e.Gyre[i])
	}
	return median(ratios)
}

func (r *Report) environments(b *strings.Builder) {
	if len(r.Environments) == 0 {
		return
	}
	t := table{texts: 1, header: []string{"tag", "resets/s", "steps/s", "reset, µs", "RAGEN's", "faster", "floor", "step, µs", "RAGEN's", "faster", "floor"}}
	for _, e := range r.Environments {
		row := []string{e.Tag}
		for _, which := range []func(Times) float64{reset, step} {
			row = append(row, number(1/medianOf(e.Gyre, which)))
		}
		for i, which := range []func(Times) float64{reset, step} {
			row = append(row, number(1e6*medianOf(e.Gyre, which)))
			if len(e.RAGEN) == 0 {
				row = append(row, "", "", "")
				continue
			}
			floor, ratio := []float64{resetFloor, stepFloor}[i], e.faster(which)
			row = append(row, number(1e6*medianOf(e.RAGEN, which)), number(ratio), verdict(floor, ratio >= floor, "≥"))
		}
		t.add(row...)
	}
	fmt.Fprintf(b, "\n### Environments\n\nBeginning an episode and playing a random action, the text of the state included, in one thread.\n\n%s", t.String())
	for _, e := range r.Environments {
		if e.Failure != "" {
			fmt.Fprintf(b, "\nRAGEN's %s: %s\n", e.Tag, e.Failure)
		}
	}
}

// missedEnvironments lists the floors that environments do not reach.
func (r *Report) missedEnvironments() []string {
	var missed []string
	for _, e := range r.Environments {
		if len(e.RAGEN) == 0 {
			continue
		}
		if v := e.faster(reset); v < resetFloor {
			missed = append(missed, fmt.Sprintf("environment %s: resets %.1f times as fast as RAGEN's, floor %d", e.Tag, v, resetFloor))
		}
		if v := e.faster(step); v < stepFloor {
			missed = append(missed, fmt.Sprintf("environment %s: steps %.1f times as fast as RAGEN's, floor %d", e.Tag, v, stepFloor))
		}
	}
	return missed
}
