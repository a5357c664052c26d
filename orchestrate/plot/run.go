package plot

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot/plotter"

	"gyre/orchestrate/config"
	"gyre/orchestrate/metrics"
)

// Run is what a run has logged so far.
type Run struct {
	Name    string // of its directory
	Dir     string
	Records []metrics.Record // in the order of steps
	// Broken says why the metrics file could not be read beyond Records; nil when it was read to its end.
	Broken error

	episodes map[string]int // validation episodes per tag, where known
	names    []string       // of all metrics; nil until they are needed
}

// ErrEmpty means that there is nothing to draw yet.
var ErrEmpty = errors.New("no step was logged yet")

// Open reads a run directory or a metrics.jsonl. A line that cannot be read ends the reading and is kept in Broken: what comes
// before it can still be drawn.
func Open(name string) (*Run, error) {
	file := name
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("expected a run directory or a metrics.jsonl: %w", err)
	}
	if info.IsDir() {
		file = filepath.Join(name, "metrics.jsonl")
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s has no metrics.jsonl: expected a run directory (runs/NAME), or a metrics.jsonl", name)
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
	r.episodes = validationEpisodes(filepath.Join(r.Dir, "config.toml"))
	return r, nil
}

// validationEpisodes reads from the run's configuration how many episodes each tag's validation has. Without a readable
// configuration (a metrics.jsonl on its own) that is unknown, and no error bars are drawn.
func validationEpisodes(file string) map[string]int {
	c, err := config.Load(file, nil)
	if err != nil {
		return nil
	}
	out := map[string]int{}
	for _, e := range c.Validation.Envs {
		out[e.Tag] += e.Groups * e.GroupSize
	}
	return out
}

// series returns a metric over the steps. Steps without a finite value are left out.
func (r *Run) series(key string) plotter.XYs {
	var out plotter.XYs
	for _, record := range r.Records {
		if v, ok := number(record, key); ok {
			out = append(out, plotter.XY{X: float64(record.Step), Y: v})
		}
	}
	return out
}

// number is a metric that is there and finite.
func number(record metrics.Record, key string) (v float64, ok bool) {
	v, ok = record.Float(key)
	return v, ok && !math.IsNaN(v) && !math.IsInf(v, 0)
}

// keys lists the metrics whose names match a pattern of path.Match, in alphabetical order.
func (r *Run) keys(pattern string) []string {
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

// AnalysedSteps lists the steps whose gradients were analysed, after the rollout filter or before it: those with a bucket metric that
// is not zero.
func (r *Run) AnalysedSteps(prefilter bool) []int {
	prefix := prefixOf(prefilter)
	var out []int
	for _, record := range r.Records {
		if isAnalysed(record, prefix) {
			out = append(out, record.Step)
		}
	}
	return out
}

// at returns the record of a step that exists.
func (r *Run) at(step int) metrics.Record {
	i := slices.IndexFunc(r.Records, func(record metrics.Record) bool { return record.Step == step })
	return r.Records[i]
}
