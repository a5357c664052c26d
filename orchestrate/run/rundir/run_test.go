package rundir

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gyre/orchestrate/run/metrics"
)

func writeRun(t *testing.T, steps ...map[string]any) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "demo")
	l, err := metrics.Open(filepath.Join(dir, metrics.File))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for step, values := range steps {
		if err := l.Log(step, values); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestReadingARun(t *testing.T) {
	dir := writeRun(t, map[string]any{"val-env/a/success": 0.5}, map[string]any{"actor/entropy": math.NaN()},
		map[string]any{"actor/entropy": 2.0})
	for _, name := range []string{"rollouts/step_2.jsonl", "rollouts/validation_10.jsonl", "rollouts/step_10.jsonl",
		"rollouts/notes.txt",
		"global_step_4/manifest.json", "global_step_12/manifest.json", "global_step_20/actor",
		".tmp-global_step_9/manifest.json"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if r.Name != "demo" || len(r.Records) != 3 || r.Config != nil || r.Info != nil || r.Broken != nil {
		t.Errorf("%+v", r)
	}
	if s := r.Series("actor/entropy"); len(s) != 1 || s[0] != (Point{2, 2}) {
		t.Errorf("entropy %v, want the one finite value", s)
	}
	if c := r.Checkpoints(); len(c) != 2 || c[0].Step != 4 || c[1].Step != 12 {
		t.Errorf("checkpoints %v, want the complete ones of steps 4 and 12", c)
	}
	if f := r.Rollouts(); len(f) != 3 || f[0].Step != 2 || f[1].Step != 10 || f[2].Step != 10 {
		t.Errorf("episodes %v", f)
	}
	if _, err := Read(t.TempDir()); err == nil || !strings.Contains(err.Error(),
		"expected a run directory (runs/NAME)") {
		t.Error(err)
	}
}

func TestOutcome(t *testing.T) {
	validation := func(a, b float64, more ...any) map[string]any {
		m := map[string]any{"val-env/a/success": a, "val-env/b/success": b, "val-env/a/non-zero/success": 1.0,
			"timing_s/testing": 2.0}
		for i := 0; i < len(more); i += 2 {
			m[more[i].(string)] = more[i+1]
		}
		return m
	}
	dir := writeRun(t, validation(0.1, 0.3), validation(0.8, 0.6, "timing_s/step", 5.0),
		validation(0.2, 0.4, "timing_s/step", 6.0),
		map[string]any{"timing_s/step": 7.0, "timing_s/checkpoint": 1.0, "actor/grad_norm": 0.5},
		validation(0, 0, "early_stopped/low_validation_success", 1.0))
	if err := os.WriteFile(filepath.Join(dir, "run.json"), []byte(`{"status": "stopped_early", "reason": "why"}`),
		0o644); err != nil {
		t.Fatal(err)
	}
	r, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	o := r.Outcome()
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-12 }
	if o.Status != "stopped_early" || o.Reason != "why" || o.Rule != "low_validation_success" || o.Steps != 4 {
		t.Errorf("how it ended: %+v", o)
	}
	if !near(o.Baseline, 0.2) || !near(o.Peak, 0.7) || o.PeakStep != 1 || o.Last != 0 ||
		!near(o.LastMean, (0.7+0.3)/3) || len(o.Points) != 4 {
		t.Errorf("success: %+v", o)
	}
	if o.Train != 18 || o.Eval != 8 || o.Total != 27 || o.GradNorm != 0.5 || !math.IsNaN(o.Entropy) {
		t.Errorf("time and the rest: %+v", o)
	}
}

// A return is never taken for a success: studies rank conditions by it.
func TestOutcomeWithoutSuccess(t *testing.T) {
	dir := writeRun(t, map[string]any{"val-env/A/episodic_return": -2.0}, map[string]any{"val-env/A/episodic_return": 1.5})
	r, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	o := r.Outcome()
	if o.Points != nil || !math.IsNaN(o.Peak) || !math.IsNaN(o.Last) || !math.IsNaN(o.LastMean) {
		t.Errorf("success: %+v", o.Course)
	}
	if o.Return.Baseline != -2 || o.Return.Peak != 1.5 || o.Return.Last != 1.5 || o.Return.LastMean != -0.25 {
		t.Errorf("return: %+v", o.Return)
	}
}
