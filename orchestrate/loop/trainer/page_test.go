package trainer

import (
	"flag"
	"os"
	"testing"

	"gyre/orchestrate/loop/advantage"
	"gyre/orchestrate/loop/collapse"
	"gyre/orchestrate/loop/gradients"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/sft"
	"gyre/orchestrate/run/metrics"
)

var rewrite = flag.Bool("update", false, "write docs/metrics.md from the tags of the metrics")

// documented are the tables of docs/metrics.md that are made of the structs in which phases report.
var documented = map[string][]any{
	"rollout": {rollout.Metrics{}, lengthMetrics{}, samplingMetrics{}, session.EngineMetrics{}},
	"batch":   {selectionMetrics{}, batchMetrics{}, analysisOnly{}},
	"update": {gapMetrics{}, samplerMetrics{}, referenceMetrics{}, penaltyMetrics{}, advantage.Reweighting{},
		dataMetrics{}, actorMetrics{}, criticMetrics{}},
	"bucket":     {gradients.Result{}},
	"analysis":   {analysisMetrics{}, sourceMetrics{}, gradients.ShareMetrics{}},
	"collapse":   {collapse.Metrics{}},
	"components": {gradients.ComponentMetrics{}},
	"time":       {session.TimeMetrics{}, session.TrafficMetrics{}, session.TotalMetrics{}, session.TestingMetrics{}},
	"sft":        {sft.Metrics{}},
}

// The tables of docs/metrics.md are those of the code. `go test ./orchestrate/loop/trainer -run Page -update` makes
// them.
func TestMetricsPageIsCurrent(t *testing.T) {
	const path = "../../../docs/metrics.md"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := metrics.Page(string(page), documented)
	if err != nil {
		t.Fatal(err)
	}
	if *rewrite {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(page) {
		t.Error("docs/metrics.md is not what the metrics' tags say: run go test ./orchestrate/loop/trainer -run Page " +
			"-update")
	}
}
