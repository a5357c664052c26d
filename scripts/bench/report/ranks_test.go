package report

import (
	"strings"
	"testing"
)

// Ranks are held against one process run by run; the floor is asked where nothing is in shards.
func TestRanks(t *testing.T) {
	r := Report{Ranks: &Ranks{Threads: 2, Modes: []Sharing{
		{"none", []float64{100, 200, 50}, []float64{90, 160, 45}, []float64{0.05, 0.1, 0.15}},
		{"full", []float64{100}, []float64{10}, []float64{0.8}},
	}}}
	if text := r.Markdown(); !strings.Contains(text, "0.90 (0.80 … 0.90)") || !strings.Contains(text, "≥ 0.85 ✓") || !strings.Contains(text, "10 %") || len(r.Missed()) != 0 {
		t.Errorf("missed %q of\n%s", r.Missed(), text)
	}
	r.Ranks.Modes[0].Many[0] = 70
	if missed := r.Missed(); len(missed) != 1 || !strings.Contains(missed[0], "0.80 times") {
		t.Errorf("missed %q, want the floor of ranks", missed)
	}
	onGPU := Report{Device: "cuda", Cases: []Case{{Name: "generate/16", Samples: map[string][]Sample{}}}}
	if text := onGPU.Markdown(); !strings.Contains(text, "Models compute on cuda") || onGPU.FloorOf("generate/16", "vllm") != (Floor{}) {
		t.Errorf("floors are asked on a GPU:\n%s", text)
	}
	r.Ranks = nil
	if strings.Contains(r.Markdown(), "### Ranks") || len(r.Missed()) != 0 {
		t.Error("a report without ranks has them")
	}
}
