// Package runs lists what lies in folders: runs with their state, success, time left and size, studies, and how runs
// differ. It reads and changes nothing.
//
//	Find ──▶ folders ──▶ Summary (a row of a list)      Series (curves)      Differences (of configuration, build, end)
//
// Numbers of a run are taken from its metrics.jsonl without decoding its lines: a run of 5,000 steps takes
// milliseconds, and of a run that goes on only what was added is read again.
package runs

import (
	"cmp"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"gyre/internal/atomicfile"
	"gyre/internal/table"
	"gyre/orchestrate/config"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
)

// deepest is how far below a folder runs are looked for: studies/NAME/runs/CONDITION/seed_N.
const deepest = 6

// Find lists the folders of runs and of studies at and below roots, each once, by name.
func Find(roots []string) (runs, studies []string, err error) {
	for _, root := range roots {
		if _, err := os.Stat(root); err != nil {
			return nil, nil, fmt.Errorf("expected a run (`gyre train` makes one) or a folder of runs: %w", err)
		}
		root = filepath.Clean(root)
		if atomicfile.Exists(root, metrics.File) {
			runs = append(runs, root)
		}
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.IsDir() { // what cannot be read holds nothing for us
				return nil
			}
			name := entry.Name()
			if path != root && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, rundir.CheckpointPrefix)) ||
				strings.Count(strings.TrimPrefix(path, root), string(filepath.Separator)) > deepest {
				return filepath.SkipDir
			}
			if atomicfile.Exists(path, "state.json") && atomicfile.Exists(path, "summary.json") {
				studies = append(studies, path)
			}
			if atomicfile.Exists(path, "run.json") || atomicfile.Exists(path, rundir.HistoryFile) {
				runs = append(runs, path)
				return filepath.SkipDir
			}
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
	}
	for _, list := range []*[]string{&runs, &studies} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return runs, studies, nil
}

// Summary is a run in a list. Numbers that are not known are NaN.
type Summary struct {
	Dir, Name, Status, Reason string
	Step, Steps               int // done, and in all (0: not known)
	Success, Peak             float64
	Return                    float64 // of the last validation
	Left                      float64 // seconds to the last step, of a run that goes on
	Disk                      int64   // bytes
	Updated                   time.Time
	Model                     string
}

// The metrics of a summary.
const (
	success = "val-env/*/success"
	returns = "val-env/*/episodic_return"
	seconds = "timing_s/total"
)

// recent is over how many steps the speed is taken that tells the time left.
const recent = 20

// Summarize reads a run's summary; series are its own, which may be kept for the next time.
func Summarize(dir string, series *Series) (Summary, error) {
	s := Summary{Dir: dir, Name: filepath.Base(dir), Success: math.NaN(), Peak: math.NaN(), Return: math.NaN(),
		Left: math.NaN()}
	info, err := rundir.ReadInfo(dir)
	if err != nil {
		s.Status, s.Reason = "unreadable", err.Error()
	}
	if info != nil {
		s.Status, s.Reason, s.Updated, s.Model = info.Status, info.Reason, info.Updated, info.Model
		s.Name, s.Step = cmp.Or(info.Name, s.Name), info.Step
	}
	steps, columns, err := series.Read(success, returns, seconds)
	if err != nil {
		return s, err
	}
	for _, v := range columns[success] {
		if !math.IsNaN(v) {
			s.Success = v
		}
		if !math.IsNaN(v) && !(s.Peak >= v) {
			s.Peak = v
		}
	}
	for _, v := range columns[returns] {
		if !math.IsNaN(v) {
			s.Return = v
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "config.toml")); err == nil {
		flat, _ := config.Flatten(text) // a broken configuration hides nothing else
		s.Steps, _ = strconv.Atoi(flat["run.steps"])
	}
	if _, supervised := slices.BinarySearch(series.Names(), "train/loss"); supervised { // its steps come of its epochs
		s.Steps = 0
	}
	if n := len(steps); n > 0 {
		s.Step = steps[n-1]
		from, spent := max(0, n-1-recent), columns[seconds]
		if s.Status == "running" && n > 1 && s.Steps > s.Step && steps[n-1] > steps[from] {
			s.Left = (spent[n-1] - spent[from]) / float64(steps[n-1]-steps[from]) * float64(s.Steps-s.Step)
		}
	}
	if info, err := os.Stat(series.path); err == nil && info.ModTime().After(s.Updated) {
		s.Updated = info.ModTime()
	}
	s.Disk = size(dir)
	return s, nil
}

// size is what a folder's files take.
func size(dir string) (bytes int64) {
	filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			if info, err := entry.Info(); err == nil {
				bytes += info.Size()
			}
		}
		return nil // what cannot be read, or is gone meanwhile, is not counted
	})
	return bytes
}

// Table has a row per run.
func Table(list []Summary) *table.Table {
	t := &table.Table{Columns: []table.Column{{Name: "run"}, {Name: "state"}, {Name: "step"},
		{Name: "steps", Hidden: true}, {Name: "success"}, {Name: "peak"}, {Name: "seconds_left", Head: "left"},
		{Name: "disk_bytes", Head: "disk"},
		{Name: "updated"}, {Name: "return", Hidden: true}, {Name: "reason", Hidden: true}, {Name: "name", Hidden: true}, {Name: "model", Hidden: true}}}
	for _, s := range list {
		step := table.Cell{Value: s.Step, Text: strconv.Itoa(s.Step)}
		var steps, updated any
		if s.Steps > 0 {
			steps, step.Text = s.Steps, step.Text+"/"+strconv.Itoa(s.Steps)
		}
		if !s.Updated.IsZero() {
			updated = table.Cell{Value: s.Updated.UTC().Format(time.RFC3339),
				Text: Duration(time.Since(s.Updated).Seconds()) + " ago"}
		}
		solved := table.Percent(s.Success)
		if math.IsNaN(s.Success) && !math.IsNaN(s.Return) { // nobody knows what a success is
			solved.Text = fmt.Sprintf("return %.3g", s.Return)
		}
		t.Add(s.Dir, table.Cell{Value: s.Status, Text: strings.ReplaceAll(s.Status, "_", " ")}, step, steps,
			solved, table.Percent(s.Peak), table.Cell{Value: s.Left, Text: Duration(s.Left)},
			table.Cell{Value: s.Disk, Text: humanize.IBytes(uint64(s.Disk))},
			updated, s.Return, s.Reason, s.Name, s.Model)
	}
	return t
}

// Duration is a time to wait for people; "" where it is not known.
func Duration(seconds float64) string {
	if math.IsNaN(seconds) {
		return ""
	}
	d := time.Duration(seconds * float64(time.Second))
	if d < time.Minute {
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}
