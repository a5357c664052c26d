package runs

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gyre/internal/table"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
)

// write leaves a run of some steps, of which each second one is validated.
func write(t *testing.T, dir, status string, steps int) *metrics.Logger {
	t.Helper()
	l, err := metrics.Open(filepath.Join(dir, metrics.File))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	grow(t, l, 1, steps)
	for name, text := range map[string]string{
		"config.toml": "[run]\nname = \"x\"\nsteps = 40\n",
		"run.json":    fmt.Sprintf(`{"id": "abc", "name": "demo", "status": %q, "engine": "torch %s"}`, status, dir),
		".lock":       "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func grow(t *testing.T, l *metrics.Logger, from, to int) {
	t.Helper()
	for step := from; step <= to; step++ {
		m := map[string]any{"timing_s/total": 2.5 * float64(step), "timing_s/total_other": 1e9, "actor/entropy": 1.0}
		if step%2 == 0 {
			m["val-env/a/success"], m["val-env/b/success"] = 0.25, 0.75-float64(step)/100
		}
		if err := l.Log(step, m); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRunsAreFoundOnceAndStudiesApart(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"a", "studies/s/runs/base/seed_1", "studies/s/runs/other/seed_1"} {
		write(t, filepath.Join(root, dir), "done", 2)
	}
	for _, file := range []string{"studies/s/state.json", "studies/s/summary.json", "a/global_step_1/run.json"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, file), []byte("[]"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	found, studies, err := Find([]string{root, filepath.Join(root, "a")})
	if err != nil || len(found) != 3 || len(studies) != 1 || !strings.HasSuffix(studies[0], "studies/s") {
		t.Errorf("runs %q, studies %q, %v", found, studies, err)
	}
	if _, _, err := Find([]string{filepath.Join(root, "nowhere")}); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("a folder that is not there: %v", err)
	}
}

// A summary says what is left to do, and follows a run that goes on without reading it anew.
func TestSummaryFollowsARun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "demo")
	logger := write(t, dir, "running", 9)
	lock, err := rundir.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	series := OpenSeries(dir)
	s, err := Summarize(dir, series)
	if err != nil {
		t.Fatal(err)
	}
	near := func(got, want float64) bool { return math.Abs(got-want) < 1e-9 }
	if s.Status != "running" || s.Step != 9 || s.Steps != 40 || !near(s.Left, 2.5*31) || !near(s.Success, (0.25+0.67)/2) ||
		!near(s.Peak, (0.25+0.73)/2) || s.Disk == 0 || time.Since(s.Updated) > time.Hour {
		t.Errorf("%+v", s)
	}
	read := series.end
	grow(t, logger, 10, 12)
	if s, _ = Summarize(dir, series); s.Step != 12 || series.end <= read || len(series.steps) != 12 {
		t.Errorf("after three more steps: %+v", s)
	}
	lock.Close() // its process has gone
	if s, _ = Summarize(dir, series); s.Status != "failed" || !math.IsNaN(s.Left) || s.Reason == "" {
		t.Errorf("%+v", s)
	}
	text := Table([]Summary{s}).Text(80)
	for _, want := range []string{"failed", "12/40", "44.0 %", "49.0 %"} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, text)
		}
	}
}

// A file that became shorter is read from its beginning.
func TestSeriesOfAResumedRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "demo")
	write(t, dir, "done", 6)
	series := OpenSeries(dir)
	if steps, columns, err := series.Read("actor/entropy", "none"); err != nil || len(steps) != 6 ||
		len(columns["actor/entropy"]) != 6 || !math.IsNaN(columns["none"][0]) {
		t.Fatal(steps, columns, err)
	}
	path := filepath.Join(dir, metrics.File)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(data), "\n")
	if err := os.WriteFile(path, []byte(strings.Join(lines[:4], "")+`{"schema":1,"st`), 0o644); err != nil {
		t.Fatal(err)
	}
	steps, columns, err := series.Read("actor/entropy")
	if err != nil || !slices.Equal(steps, []int{1, 2, 3, 4}) || len(columns["actor/entropy"]) != 4 {
		t.Error(steps, columns, err)
	}
	if names := series.Names(); !slices.Contains(names, "timing_s/total") || slices.Contains(names, "step") {
		t.Errorf("names %q", names)
	}
	if steps, _, err := OpenSeries(t.TempDir()).Read("x"); steps != nil || err != nil {
		t.Errorf("a run without metrics: %v, %v", steps, err)
	}
}

func TestDifferencesOfTwoRuns(t *testing.T) {
	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	write(t, a, "done", 4)
	write(t, b, "done", 2)
	var list []*rundir.Run
	for _, dir := range []string{a, b} {
		info, err := rundir.ReadInfo(dir)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, &rundir.Run{Dir: dir, Info: info})
	}
	if builds := Builds(list, []string{"a", "b"}); len(builds.Rows) != 1 || builds.Rows[0][0] != "engine" {
		t.Errorf("%v", builds)
	}
	ends, err := Ends(list, []string{"a", "b"}, false)
	if err != nil || len(ends.Rows) != 2 {
		t.Fatalf("%v, %v", ends.Rows, err)
	}
	success := ends.Rows[0]
	if cell := success[1].(table.Cell); success[0] != "val-env/*/success" || !strings.HasSuffix(cell.Text, "(step 4)") ||
		math.Abs(success[3].(float64)-0.01) > 1e-9 {
		t.Errorf("%v", success)
	}
	if all, _ := Ends(list, []string{"a", "b"}, true); len(all.Rows) != 4 {
		t.Errorf("%d rows of all metrics: %v", len(all.Rows), all.Rows)
	}
	if got := Labels([]string{a, b, b}); got[0] != "a" || got[1] != b {
		t.Errorf("labels %q", got)
	}
	study := []string{"s/runs/0.1/seed_1", "s/runs/0.3/seed_1", "t/runs/0.3/seed_1", "s/runs/0.1/seed_2"}
	if got := Labels(study); !slices.Equal(got, []string{"0.1/seed_1", "s/runs/0.3/seed_1", "t/runs/0.3/seed_1",
		"seed_2"}) {
		t.Errorf("labels %q", got)
	}
}
