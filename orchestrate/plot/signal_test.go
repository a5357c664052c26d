package plot

import (
	"context"
	"math"
	"path/filepath"
	"testing"

	"gyre/orchestrate/metrics"
)

func TestSignalIsTheRootOfWhatWasLogged(t *testing.T) {
	b := bucket{values: map[string]float64{"signal_sq/task": 4, "signal_sq_low/task": -1, "signal_sq_high/task": 9, "signal_sq/kl": -0.5}}
	if middle, low, high, ok := signal(b, "task"); !ok || middle != 2 || low != 0 || high != 3 {
		t.Errorf("signal %v in [%v, %v], %v", middle, low, high, ok)
	}
	if _, _, _, ok := signal(b, "kl"); ok {
		t.Error("a signal without an interval has no error bar")
	}
}

// Where the analysis has intervals, figures show them and make room for them.
func TestFiguresShowIntervals(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	logger, err := metrics.Open(filepath.Join(dir, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	values := analysis(true)
	values["grad_analysis/confidence"], values["grad_analysis/profile"] = 0.9, "exact"
	for _, name := range []string{"bucket_1", "bucket_2", "all"} {
		p := "grad_norm/" + name + "/"
		values[p+"signal_sq/task"], values[p+"signal_sq_low/task"], values[p+"signal_sq_high/task"] = 0.25, 0.01, 4.0
	}
	if err := logger.Log(1, values); err != nil {
		t.Fatal(err)
	}
	logger.Close()
	run, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := newStep("run", run.at(1), postFilter)
	norms, err := s.norms()
	if err != nil {
		t.Fatal(err)
	}
	task := norms.panels[2]
	if task.plot.Y.Max < 2 || len(task.legend) != 1 || task.legend[0].label != "without noise, 90% interval" {
		t.Errorf("the axis ends at %v, the legend is %v", task.plot.Y.Max, task.legend)
	}
	summary, err := s.summary()
	if err != nil {
		t.Fatal(err)
	}
	if middle := summary.panels[1]; middle.plot.Y.Max < 2 || math.IsInf(middle.plot.Y.Max, 0) || len(middle.legend) != 2 {
		t.Errorf("the summary's axis ends at %v, its legend is %v", middle.plot.Y.Max, middle.legend)
	}
	if err := run.Draw(context.Background(), Options{DPI: testDPI, Wrote: func(string) {}, Note: func(string) {}}); err != nil {
		t.Fatal(err)
	}
}
