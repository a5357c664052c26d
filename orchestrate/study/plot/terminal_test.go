package plot

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
)

func TestTerminalHasCurveEndsAndNothingElse(t *testing.T) {
	read := func(dir string) *rundir.Run {
		r, err := rundir.Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	var out strings.Builder
	if err := Terminal(&out, read(writeRun(t))); err != nil { // success is step/40 at steps 0, 10, 20, 30
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
	if first, last := lines[len(lines)-2], lines[len(lines)-1]; !strings.HasPrefix(first, "  after step 0      0.0 %") ||
		!strings.HasPrefix(last, "  after step 30    75.0 %") {
		t.Errorf("ends %q and %q", first, last)
	}
	if !strings.Contains(out.String(), "sokoban: validation success in %") || !strings.HasPrefix(strings.TrimSpace(lines[0]), "100") {
		t.Errorf("no curve from 0 to 100 %%:\n%s", out.String())
	}
	for i, row := range lines[:11] { // the curve rises from the left of the bottom to the right at 75 %
		if strings.ContainsAny(row, "╭╯─") != (i >= 2) {
			t.Errorf("row %d: %q", i, row)
		}
	}
	dir := t.TempDir()
	logger, err := metrics.Open(filepath.Join(dir, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if err := logger.Log(1, map[string]any{"actor/entropy": 0.5}); err != nil {
		t.Fatal(err)
	}
	logger.Close()
	if err := Terminal(&out, read(dir)); err == nil || !strings.Contains(err.Error(), "nothing was validated") {
		t.Error(err)
	}
}

// Validations at uneven steps keep their places on the axis.
func TestTheTerminalsAxisIsTheStep(t *testing.T) {
	got := alongSteps([]rundir.Point{{Step: 0, Value: 0}, {Step: 1, Value: 0.5}, {Step: 4, Value: 0.8}}, 5)
	for i, want := range []float64{0, 50, 60, 70, 80} {
		if math.Abs(got[i]-want) > 1e-9 {
			t.Errorf("point %d is %v, want %v", i, got[i], want)
		}
	}
}
