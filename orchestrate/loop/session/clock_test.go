package session

import (
	"maps"
	"testing"
	"time"

	"gyre/orchestrate/experiment"
	"gyre/orchestrate/run/metrics"
	"gyre/torch"
)

func TestClockSharesOfThePeak(t *testing.T) {
	p := &Clock{phases: map[string]phase{}, work: func() torch.Work { return torch.Work{} }}
	machine := &experiment.Machine{Bandwidth: 1e10, FLOPs: 1e11}
	p.record("ref", time.Second, torch.Work{FLOPs: 1e11, Bytes: 1e9})
	p.record("ref", 3*time.Second, torch.Work{FLOPs: 2e11, Bytes: 1e9})
	p.Add("env_wait", time.Second)
	p.record("update_actor", 2*time.Second, torch.Work{})
	p.record("grad_components", time.Second, torch.Work{})
	before := torch.EngineStats{PromptTokens: 100, CachedTokens: 10, Preemptions: 1,
		Decode: torch.EnginePhase{Seconds: 1}}
	after := torch.EngineStats{PromptTokens: 300, CachedTokens: 60, Preemptions: 3,
		Decode: torch.EnginePhase{Seconds: 3, Work: torch.Work{FLOPs: 2e10, Bytes: 1.6e10}}}
	got := metrics.Line{}
	p.Sampling(before, after)
	p.Finish(got, 4*time.Second, machine, 10, 30)
	want := metrics.Line{
		"timing_s/prefill": 0.0, "timing_s/decode": 2.0, "timing_s/sample": 0.0, "timing_s/ref": 4.0,
		"timing_s/env_wait": 1.0, "timing_s/step": 4.0,
		"timing_s/update_actor": 2.0, "timing_s/grad_components": 1.0, "perf/kv_hit_rate": 0.25,
		"perf/preemptions": 2.0, "perf/proposed_tokens": 0.0, "perf/accepted_tokens": 0.0,
		"perf/mfu/ref": 0.75, "perf/mbu/ref": 0.05, "perf/mfu/decode": 0.1, "perf/mbu/decode": 0.8,
		"perf/peak_gflops": 100.0, "perf/peak_gbytes_per_s": 10.0, "perf/time_per_step": 4.0, "perf/throughput": 2.5,
		"perf/update_tokens_per_s":      15.0,
		"perf/grad_components_overhead": 0.5,
	}
	delete(got, "perf/peak_rss_gib") // this process's
	if !maps.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	next := metrics.Line{}
	p.Finish(next, time.Second, &experiment.Machine{}, 0, 0)
	delete(next, "perf/peak_rss_gib")
	if !maps.Equal(next, metrics.Line{"timing_s/step": 1.0, "perf/time_per_step": 1.0}) {
		t.Errorf("a step without phases, on a machine whose peak is not known, has %v", next)
	}
}
