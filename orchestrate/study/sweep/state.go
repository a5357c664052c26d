package sweep

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"gyre/internal/atomicfile"
	"gyre/internal/exitcode"
	"gyre/orchestrate/config"
	"gyre/orchestrate/run/rundir"
)

// Status of a run in a study.
type Status string

const (
	Pending      Status = "pending"
	Running      Status = "running"
	Finished     Status = "finished"
	StoppedEarly Status = "stopped_early" // by a collapse rule: a result
	Failed       Status = "failed"
	Paused       Status = "paused" // at a rung of a search: from there it may be promoted
)

// Run is one run of a study.
type Run struct {
	Condition string   `json:"condition"`
	Seed      int      `json:"seed"`
	Stage     int      `json:"stage"`
	Dir       string   `json:"dir"`
	Log       string   `json:"log"`
	Overrides []string `json:"overrides"`
	Status    Status   `json:"status"`
	Attempts  int      `json:"attempts"` // that failed
	ExitCode  int      `json:"exit_code"`
	Error     string   `json:"error,omitempty"`
	Seconds   float64  `json:"seconds"` // of all its processes

	Setting     []string `json:"setting"` // the condition's own overrides: what another stage starts from
	Coordinates []string `json:"coordinates,omitempty"`
	Line        string   `json:"line"`              // what its line in the summary log begins with
	Devices     string   `json:"devices,omitempty"` // what it computed on, such as 4xH100

	// Of a search: the rung that the run has reached or goes to, the steps there, and its scores at the rungs that it
	// has reached.
	Rung   int       `json:"rung,omitempty"`
	Target int       `json:"target,omitempty"`
	Scores []float64 `json:"scores,omitempty"`

	steps  int               // that the whole run takes
	config *config.Config    // nil where it is not valid
	files  map[string]string // that it began with, and their SHA-256
}

// same tells whether two runs are of one condition and seed.
func (r *Run) same(o *Run) bool { return r.Condition == o.Condition && r.Seed == o.Seed }

// alike tells whether two runs have the same settings. Their threads follow from the slots, and no bit of a run depends
// on them.
func (r *Run) alike(o *Run) bool {
	settings := func(r *Run) []string {
		return slices.DeleteFunc(slices.Clone(r.Overrides), func(word string) bool {
			return strings.HasPrefix(word, "run.threads=")
		})
	}
	return slices.Equal(settings(r), settings(o))
}

// Over tells whether nothing more is to be done.
func (r *Run) Over() bool {
	return r.Status == Finished || r.Status == StoppedEarly || r.Status == Failed
}

// state is state.json: it is written after every change, so that a study that was killed goes on where it was.
type state struct {
	mu   sync.Mutex // guards Runs, and the file
	path string
	Name string `json:"study"`
	Base string `json:"base"`
	Kind Kind   `json:"kind"`
	Runs []*Run `json:"runs"`
}

func openState(s *Study) (*state, error) {
	st := &state{path: filepath.Join(s.Dir(), "state.json"), Name: s.Name, Base: s.BasePath()}
	data, err := os.ReadFile(st.path)
	if errors.Is(err, fs.ErrNotExist) {
		return st, nil
	}
	if err == nil {
		err = json.Unmarshal(data, st)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", st.path, err)
	}
	for _, r := range st.Runs {
		switch {
		case r.Status == Running: // when the study was killed
			r.Status = Pending
		case r.Status == Failed && r.ExitCode != exitcode.Diverged: // what it lacked, a model say, may be there now
			r.Status, r.Attempts = Pending, 0
		}
	}
	return st, nil
}

// known is what is known of a run; nil of a new one.
func (st *state) known(r *Run) *Run {
	if i := slices.IndexFunc(st.Runs, r.same); i >= 0 {
		return st.Runs[i]
	}
	return nil
}

// check refuses runs whose results would be mixed up with others under one name: one that began with other settings,
// and one that would use another content of a file than a run with results did.
func (st *state) check(runs []*Run) error {
	var begun []*Run
	for _, r := range st.Runs {
		if info, err := rundir.ReadInfo(r.Dir); err == nil && info != nil && info.Step > 0 {
			r.files = info.Files
			begun = append(begun, r)
		}
	}
	for _, r := range runs {
		known := st.known(r)
		if known != nil && !known.alike(r) && atomicfile.Exists(known.Dir) {
			return fmt.Errorf("%s: condition %s, seed %d began with %q and the study now says %q: choose another "+
				"study.name, or remove %s to repeat it",
				st.path, r.Condition, r.Seed, known.Overrides, r.Overrides, known.Dir)
		}
		if r.config == nil || len(begun) == 0 || known != nil && known.Over() {
			continue
		}
		trains := *r.config
		trains.Run.Loggers = nil // they only show results
		for name, now := range trains.Files() {
			for _, other := range begun {
				if before := other.files[name]; before != "" && before != now {
					return fmt.Errorf("%s: %s has changed since condition %s, seed %d began (SHA-256 %.12s, now %.12s), "+
						"and condition %s, seed %d would use it as it is now: put it back, choose another study.name, or "+
						"remove %s and what else ran with the old one", st.path, name, other.Condition, other.Seed, before,
						now, r.Condition, r.Seed, other.Dir)
				}
			}
		}
	}
	return nil
}

// plan adds the runs that are new, once check has nothing against them.
func (st *state) plan(runs []*Run) ([]*Run, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := st.check(runs); err != nil {
		return nil, err
	}
	var out []*Run
	for _, r := range runs {
		known := st.known(r)
		if known == nil {
			st.Runs = append(st.Runs, r)
			out = append(out, r)
			continue
		}
		if !known.alike(r) { // it has not begun
			*known = *r
		}
		if !known.Over() {
			known.Overrides = r.Overrides // its threads may be others
		}
		known.Setting, known.Coordinates, known.Line, known.Log = r.Setting, r.Coordinates, r.Line, r.Log
		known.steps = r.steps
		out = append(out, known)
	}
	return out, st.write()
}

// of are the runs of a stage.
func (st *state) of(stage int) []*Run {
	return slices.DeleteFunc(slices.Clone(st.Runs), func(r *Run) bool { return r.Stage != stage })
}

// change applies a change to the runs and writes it down.
func (st *state) change(apply func()) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	apply()
	return st.write()
}

func (st *state) write() error {
	return atomicfile.Write(st.path, func(w io.Writer) error {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(st)
	})
}
