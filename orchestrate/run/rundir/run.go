package rundir

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gyre/internal/atomicfile"
	"gyre/internal/statistics"
	"gyre/orchestrate/config"
	"gyre/orchestrate/run/metrics"
)

// Run is what a run has left so far, for those who read it: nothing is locked, nothing changed.
type Run struct {
	Name    string // of its directory
	Dir     string
	Records []metrics.Record // in the order of steps
	// Broken says why the metrics could not be read beyond Records; nil when they were read to their end.
	Broken error
	Config *config.Config // nil where config.toml is missing or not readable (a metrics.jsonl on its own)
	Info   *Info          // nil without run.json

	names []string // of all metrics; nil until they are needed
}

// ErrEmpty means that nothing was logged yet.
var ErrEmpty = errors.New("no step was logged yet")

// HistoryFile holds the metrics of a run that another program logged, as scripts/wandb_history.py writes them: rows
// with _step.
const HistoryFile = "history.jsonl"

// Read reads a run directory, a metrics.jsonl, or a history. A line that cannot be read ends the reading and is kept
// in Broken: what comes before it can still be used.
func Read(name string) (*Run, error) {
	file := name
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("expected a run directory (`gyre train` makes one) or a metrics.jsonl: %w", err)
	}
	if info.IsDir() {
		file = filepath.Join(name, metrics.File)
		if !atomicfile.Exists(file) {
			if file = filepath.Join(name, HistoryFile); !atomicfile.Exists(file) {
				return nil, fmt.Errorf("%s: expected a run directory (runs/NAME) or a metrics.jsonl; "+
					"scripts/wandb_history.py makes a folder of a W&B run", name)
			}
		}
	}
	absolute, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return nil, err
	}
	r := &Run{Name: filepath.Base(absolute), Dir: filepath.Dir(file)}
	for record, err := range metrics.Read(file) {
		if err != nil {
			r.Broken = err
			break
		}
		r.Records = append(r.Records, record)
	}
	if len(r.Records) == 0 {
		if r.Broken != nil {
			return nil, r.Broken
		}
		return nil, fmt.Errorf("%s: %w", file, ErrEmpty)
	}
	// A broken description must not hide the measurements: it is left out.
	if c, err := config.Load(r.File("config.toml"), nil); err == nil {
		r.Config = c
	}
	if info, err := ReadInfo(r.Dir); err == nil {
		r.Info = info
	}
	if r.Info != nil && filepath.Base(file) == HistoryFile {
		r.Name = cmp.Or(r.Info.Name, r.Name)
	}
	return r, nil
}

// ID is the run's, "" where it is not known.
func (r *Run) ID() string {
	if r.Info == nil {
		return ""
	}
	return r.Info.ID
}

// Changes are the keys that a resumption changed, in the order of steps.
func (r *Run) Changes() []config.Change {
	if r.Info == nil {
		return nil
	}
	return r.Info.Changes
}

// File names something inside the directory.
func (r *Run) File(elements ...string) string {
	return filepath.Join(append([]string{r.Dir}, elements...)...)
}

// Point is a metric at a step.
type Point struct {
	Step  int
	Value float64
}

// Series returns a metric over the steps. Steps without a finite value are left out.
func (r *Run) Series(key string) []Point {
	var out []Point
	for _, record := range r.Records {
		if v, ok := Number(record, key); ok {
			out = append(out, Point{record.Step, v})
		}
	}
	return out
}

// Mean is the mean of the metrics that a pattern of path.Match names, step by step.
func (r *Run) Mean(pattern string) []Point {
	keys := r.Keys(pattern)
	var out []Point
	for _, record := range r.Records {
		var found []float64
		for _, key := range keys {
			if v, ok := Number(record, key); ok {
				found = append(found, v)
			}
		}
		if len(found) > 0 {
			out = append(out, Point{record.Step, statistics.Mean(found)})
		}
	}
	return out
}

// Number is a metric that is there and finite.
func Number(record metrics.Record, key string) (v float64, ok bool) {
	v, ok = record.Float(key)
	return v, ok && statistics.Finite(v)
}

// Keys lists the metrics whose names match a pattern of path.Match, in alphabetical order.
func (r *Run) Keys(pattern string) []string {
	if r.names == nil {
		found := map[string]bool{}
		for _, record := range r.Records {
			for key := range record.Values {
				found[key] = true
			}
		}
		r.names = slices.Sorted(maps.Keys(found))
	}
	var out []string
	for _, key := range r.names {
		if ok, _ := path.Match(pattern, key); ok {
			out = append(out, key)
		}
	}
	return out
}

// Tag is what the * of a pattern stands for in a key; "" in a pattern without one.
func Tag(pattern, key string) string {
	before, after, wild := strings.Cut(pattern, "*")
	if !wild {
		return ""
	}
	return strings.TrimSuffix(strings.TrimPrefix(key, before), after)
}

// At returns the record of a step; false where there is none.
func (r *Run) At(step int) (metrics.Record, bool) {
	i := slices.IndexFunc(r.Records, func(record metrics.Record) bool { return record.Step == step })
	if i < 0 {
		return metrics.Record{}, false
	}
	return r.Records[i], true
}

// ValidationEpisodes tells how many episodes each tag's validation has; nil where the configuration is not known.
func (r *Run) ValidationEpisodes() map[string]int {
	if r.Config == nil {
		return nil
	}
	out := map[string]int{}
	for _, e := range r.Config.Validation.Envs {
		out[e.Tag] += e.Groups * e.GroupSize
	}
	return out
}

// Episodes is the number of episodes that a validation's success is over; 0 where that is not known, or is the mean
// over several tags.
func (r *Run) Episodes() int {
	tags := r.ValidationEpisodes()
	if len(tags) != 1 {
		return 0
	}
	for _, n := range tags {
		return n
	}
	return 0
}

// Stored is something of a step that lies in the directory.
type Stored struct {
	Kind string // of episodes: step, validation or analysis
	Step int
	Path string
}

var (
	checkpointName = regexp.MustCompile(`^(` + CheckpointPrefix + `)(\d+)$`)
	rolloutName    = regexp.MustCompile(`^(step|validation|analysis)_(\d+)\.jsonl$`)
)

// Checkpoints lists the complete checkpoints, oldest first.
func (r *Run) Checkpoints() []Stored {
	return slices.DeleteFunc(stored(r.Dir, checkpointName), func(s Stored) bool {
		return !atomicfile.Exists(s.Path, "manifest.json")
	})
}

// Rollouts lists the files of episodes by step.
func (r *Run) Rollouts() []Stored { return stored(r.File("rollouts"), rolloutName) }

// stored lists a folder's entries that a pattern of kind and step matches. A folder that cannot be read has none.
func stored(folder string, pattern *regexp.Regexp) []Stored {
	entries, _ := os.ReadDir(folder)
	var out []Stored
	for _, e := range entries {
		parts := pattern.FindStringSubmatch(e.Name())
		if parts == nil {
			continue
		}
		step, err := strconv.Atoi(parts[2])
		if err == nil {
			out = append(out, Stored{parts[1], step, filepath.Join(folder, e.Name())})
		}
	}
	slices.SortStableFunc(out, func(a, b Stored) int { return a.Step - b.Step })
	return out
}
