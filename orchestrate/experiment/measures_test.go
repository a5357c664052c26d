package experiment

import (
	"testing"

	"gyre/orchestrate/config"
)

func TestPlans(t *testing.T) {
	for _, c := range []struct {
		name       string
		parameters int64
		change     func(*config.Analysis)
		want       GradientPlan
	}{
		{"small models keep every group", 1e6, func(*config.Analysis) {},
			GradientPlan{Buffers: 45, Bytes: 180e6, Keep: true, Passes: 1}},
		{"large ones sketch", 1e9, func(*config.Analysis) {},
			GradientPlan{Buffers: 9, Bytes: 36e9 + 24*4*BucketSketch, Passes: 1}},
		{"one component at a time", 1e9, func(a *config.Analysis) { a.LowMemory = true },
			GradientPlan{Buffers: 3, Bytes: 12e9 + 24*4*BucketSketch, Passes: 3}},
		{"what fits exactly is kept", 1 << 20, func(a *config.Analysis) { a.MemoryMiB = 180 },
			GradientPlan{Buffers: 45, Bytes: 45 << 22, Keep: true, Passes: 1}},
		{"paper", 1e9, func(a *config.Analysis) { a.Profile = "paper" },
			GradientPlan{Buffers: 3, Bytes: 12e9, Passes: 2}},
	} {
		a := config.Analysis{Profile: "exact", MemoryMiB: 1 << 10}
		c.change(&a)
		if got := PlanBuckets(a, c.parameters, 3, 8, 6); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	for want, p := range map[string]GradientPlan{
		"45 gradient buffers, 180.0 MiB, every group's gradient kept, one forward pass": {Buffers: 45, Bytes: 45 << 22,
			Keep: true, Passes: 1},
		"3 gradient buffers, 0.5 MiB, 3 forward passes": {Buffers: 3, Bytes: 1 << 19, Passes: 3}} {
		if p.String() != want {
			t.Errorf("%+v: %q, want %q", p, p, want)
		}
	}
}

func TestSizesOfComponents(t *testing.T) {
	if got := ComponentBuffers(3, 2); got != 7 {
		t.Errorf("%d buffers for three parts, two terms, the total, and one", got)
	}
	if got, want := ComponentBytes(1000, 13, 10, 7),
		int64(13*4*1000+2*10*EpisodeSketch*4+10*10*12+10*4*8*13); got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
	if got := ComponentBytes(1000, 13, 10, 0); got != 52000 {
		t.Errorf("%d bytes without bands", got)
	}
}
