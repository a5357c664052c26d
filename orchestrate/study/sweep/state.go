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
	"sync"

	"gyre/internal/atomicfile"
	"gyre/internal/exitcode"
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

	steps int // that the whole run takes
}

// same tells whether two runs are of one condition and seed.
func (r *Run) same(o *Run) bool { return r.Condition == o.Condition && r.Seed == o.Seed }

// Over tells whether nothing more is to be done.
func (r *Run) Over() bool {
	return r.Status == Finished || r.Status == StoppedEarly || r.Status == Failed
}

// state is state.json: it is written after every change, so that a study that was killed goes on where it was.
type state struct {
	mu   sync.Mutex
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

// plan adds the runs that are new. One that is known must be the same: results of two settings under one name would
// be mixed up.
func (st *state) plan(runs []*Run) ([]*Run, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	var out []*Run
	for _, r := range runs {
		i := slices.IndexFunc(st.Runs, r.same)
		if i < 0 {
			st.Runs = append(st.Runs, r)
			out = append(out, r)
			continue
		}
		known := st.Runs[i]
		if !slices.Equal(known.Overrides, r.Overrides) {
			if atomicfile.Exists(known.Dir) {
				return nil, fmt.Errorf("%s: condition %s, seed %d began with %q and the study now says %q: choose "+
					"another study.name, or remove %s to repeat it",
					st.path, r.Condition, r.Seed, known.Overrides, r.Overrides, known.Dir)
			}
			*known = *r
		}
		known.Setting, known.Coordinates, known.Line, known.Log = r.Setting, r.Coordinates, r.Line, r.Log
		known.steps = r.steps
		out = append(out, known)
	}
	return out, st.write()
}

// of are the runs of a stage, has whether there are any.
func (st *state) of(stage int) []*Run {
	return slices.DeleteFunc(slices.Clone(st.Runs), func(r *Run) bool { return r.Stage != stage })
}

func (st *state) has(stage int) bool { return len(st.of(stage)) > 0 }

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
