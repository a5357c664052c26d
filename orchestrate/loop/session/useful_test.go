package session

import (
	"math"
	"strings"
	"testing"
	"time"

	"gyre/orchestrate/experiment"
	"gyre/orchestrate/run/metrics"
	"gyre/torch"
)

// shares are what a line says of useful work, and their sum.
func shares(line metrics.Line) (found map[string]float64, sum float64) {
	found = map[string]float64{}
	for name, v := range line.Floats() {
		if name == "perf/useful" || strings.HasPrefix(name, "perf/lost/") {
			found[name] = v
			sum += v
		}
	}
	return found, sum
}

func TestStepIsDividedIntoUsefulWorkAndLosses(t *testing.T) {
	c := &Clock{phases: map[string]phase{}, alone: true}
	machine := &experiment.Machine{Bandwidth: 1e10, FLOPs: 1e11}
	c.Add("env_wait", time.Second)
	c.Add("gen", 4*time.Second)
	c.record("prefill", time.Second, torch.Work{FLOPs: 1e11, Bytes: 1e9})     // 1 s by arithmetic
	c.record("decode", 3*time.Second, torch.Work{FLOPs: 2e10, Bytes: 1.5e10}) // 1.5 s by traffic
	c.record("ref", time.Second, torch.Work{FLOPs: 4e11})                     // more than the measured peak
	c.record("update_actor", 3*time.Second, torch.Work{FLOPs: 2e11, Bytes: 9e10})
	c.record("optimizer", time.Second, torch.Work{Bytes: 5e9})
	line := metrics.Line{}
	c.Finish(line, 10*time.Second, machine, 10, 10)
	want := map[string]float64{"perf/useful": (1 + 1.5 + 1 + 2.5) / 10, "perf/lost/environments": 0.1,
		"perf/lost/sampling": 0.15, "perf/lost/log_probs": 0, "perf/lost/update": 0.05, "perf/lost/other": 0.1}
	got, sum := shares(line)
	for name, v := range want {
		if math.Abs(got[name]-v) > 1e-12 {
			t.Errorf("%s is %v, want %v", name, got[name], v)
		}
	}
	if len(got) != len(want) || math.Abs(sum-1) > 1e-12 {
		t.Errorf("%v add up to %v", got, sum)
	}

	// A validation and the checkpoint before the step are part of its time, and no useful work.
	line["timing_s/testing"], line["timing_s/checkpoint"] = 4.0, 6.0
	new(Totals).Into(line)
	if got, sum := shares(line); math.Abs(sum-1) > 1e-12 || math.Abs(got["perf/useful"]-0.3) > 1e-12 ||
		math.Abs(got["perf/lost/other"]-0.55) > 1e-12 {
		t.Errorf("with validation and checkpoint %v, together %v", got, sum)
	}
}

// What a window samples in the middle of the update is sampling.
func TestSamplingBesideTheUpdateCounts(t *testing.T) {
	var done torch.Work
	c := &Clock{phases: map[string]phase{}, alone: true, work: func() torch.Work { return done }}
	if err := c.Aside(func() error { done.FLOPs = 1e11; return nil }); err != nil {
		t.Fatal(err)
	}
	c.Add("gen", 2*time.Second)
	for i, want := range []float64{0.5, 0} { // the next step begins anew
		line := metrics.Line{}
		c.Finish(line, 2*time.Second, &experiment.Machine{Bandwidth: 1e10, FLOPs: 1e11}, 1, 1)
		if got, _ := shares(line); math.Abs(got["perf/useful"]-want) > 1e-12 {
			t.Errorf("step %d: %v, want %v", i+1, got, want)
		}
	}
}

// A share that nobody knows is absent.
func TestUsefulWorkIsAbsentWhereRatesAreUnknown(t *testing.T) {
	known := experiment.Machine{Bandwidth: 1e10, FLOPs: 1e11}
	for _, x := range []struct {
		name    string
		alone   bool
		machine experiment.Machine
	}{{"a short run, or a GPU", true, experiment.Machine{}}, {"other ranks sample", false, known}} {
		c, line := &Clock{phases: map[string]phase{}, alone: x.alone}, metrics.Line{}
		c.Finish(line, time.Second, &x.machine, 1, 1)
		new(Totals).Into(line)
		if got, _ := shares(line); len(got) > 0 {
			t.Errorf("%s: %v", x.name, got)
		}
	}
}
