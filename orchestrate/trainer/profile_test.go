package trainer

import (
	"maps"
	"testing"
	"time"

	"gyre/torch"
)

func TestProfileSharesOfThePeak(t *testing.T) {
	p := profile{begin: time.Now(), bandwidth: 1e10, flops: 1e11}
	p.add("ref", torch.Work{FLOPs: 1e11, Bytes: 1e9}, 1)
	p.add("ref", torch.Work{FLOPs: 2e11, Bytes: 1e9}, 3)
	p.add("idle", torch.Work{}, 1)
	before := torch.EngineStats{PromptTokens: 100, CachedTokens: 10, Preemptions: 1, Decode: torch.EnginePhase{Time: time.Second}}
	after := torch.EngineStats{PromptTokens: 300, CachedTokens: 60, Preemptions: 3,
		Decode: torch.EnginePhase{Time: 3 * time.Second, Work: torch.Work{FLOPs: 2e10, Bytes: 1.6e10}}}
	got := map[string]float64{}
	p.sampling(before, after, got)
	if err := p.into(got); err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{
		"timing_s/prefill": 0, "timing_s/decode": 2, "timing_s/sample": 0, "perf/kv_hit_rate": 0.25, "perf/preemptions": 2,
		"perf/mfu/ref": 0.75, "perf/mbu/ref": 0.05, "perf/mfu/decode": 0.1, "perf/mbu/decode": 0.8,
		"perf/peak_gflops": 100, "perf/peak_gbytes_per_s": 10,
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	next := map[string]float64{}
	if err := p.into(next); err != nil || len(next) != 2 {
		t.Errorf("a step without phases has %v, %v; want the peak alone", next, err)
	}
}

func TestShortRunsDoNotMeasureTheMachine(t *testing.T) {
	p := profile{begin: time.Now()}
	p.add("ref", torch.Work{FLOPs: 1, Bytes: 1}, 1)
	got := map[string]float64{}
	if err := p.into(got); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
	onDevice := profile{begin: time.Now().Add(-worthMeasuring), onDevice: true}
	onDevice.add("ref", torch.Work{FLOPs: 1, Bytes: 1}, 1)
	if err := onDevice.into(got); err != nil || len(got) != 0 {
		t.Errorf("models on a device have the CPU's peak: %v, %v", got, err)
	}
	p.begin = time.Now().Add(-worthMeasuring)
	p.add("ref", torch.Work{FLOPs: 1, Bytes: 1}, 1)
	if err := p.into(got); err != nil || got["perf/peak_gflops"] <= 0 || got["perf/mfu/ref"] <= 0 {
		t.Errorf("a longer run has %v, %v", got, err)
	}
}
