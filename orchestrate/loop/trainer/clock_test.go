package trainer

import (
	"maps"
	"testing"
	"time"

	"gyre/orchestrate/experiment"
	"gyre/torch"
)

func TestClockSharesOfThePeak(t *testing.T) {
	var p clock
	machine := &experiment.Machine{Bandwidth: 1e10, FLOPs: 1e11}
	p.add("ref", torch.Work{FLOPs: 1e11, Bytes: 1e9}, 1)
	p.add("ref", torch.Work{FLOPs: 2e11, Bytes: 1e9}, 3)
	p.add("idle", torch.Work{}, 1)
	before := torch.EngineStats{PromptTokens: 100, CachedTokens: 10, Preemptions: 1, Decode: torch.EnginePhase{Time: time.Second}}
	after := torch.EngineStats{PromptTokens: 300, CachedTokens: 60, Preemptions: 3,
		Decode: torch.EnginePhase{Time: 3 * time.Second, Work: torch.Work{FLOPs: 2e10, Bytes: 1.6e10}}}
	got := map[string]float64{}
	p.sampling(before, after, got)
	p.into(got, machine)
	want := map[string]float64{
		"timing_s/prefill": 0, "timing_s/decode": 2, "timing_s/sample": 0, "perf/kv_hit_rate": 0.25, "perf/preemptions": 2,
		"perf/mfu/ref": 0.75, "perf/mbu/ref": 0.05, "perf/mfu/decode": 0.1, "perf/mbu/decode": 0.8,
		"perf/peak_gflops": 100, "perf/peak_gbytes_per_s": 10,
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	next := map[string]float64{}
	if p.into(next, machine); len(next) != 2 {
		t.Errorf("a step without phases has %v; want the peak alone", next)
	}
}

func TestBeforeThePeakIsKnownThereAreNoShares(t *testing.T) {
	var p clock
	p.add("ref", torch.Work{FLOPs: 1, Bytes: 1}, 1)
	got := map[string]float64{}
	if p.into(got, &experiment.Machine{}); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}
