package metrics

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Sink is a place where metrics go. It belongs to one goroutine.
type Sink interface {
	// Log writes the metrics of one step. Steps increase.
	Log(step int, values map[string]any) error
	// Close puts everything on disk.
	Close() error
}

// Loggers are the kinds of sinks by the names that run.loggers takes.
var Loggers = []string{"jsonl", "tensorboard", "wandb"}

// File is the name of a run's metrics in its directory.
const File = "metrics.jsonl"

// Run says whose metrics are logged, and from where on.
type Run struct {
	Dir, ID, Name string
	Config        []byte   // the resolved configuration (TOML)
	Loggers       []string // of Loggers; jsonl is always there
	// First is the first step that this directory's metrics can have, Last the one to go on after (-1: none). All steps
	// from First (or 0, the validation before training) to Last must be there: a hole is an error.
	First, Last int
	// Sparse says that not every step has a line (supervised fine-tuning logs now and then).
	Sparse bool
}

// HoleError means that metrics.jsonl lacks steps that the checkpoint to continue from has done.
type HoleError struct {
	Path     string
	From, To int // the missing steps
	Last     int // of the checkpoint
}

func (e *HoleError) Error() string {
	steps := fmt.Sprintf("steps %d to %d", e.From, e.To)
	if e.From == e.To {
		steps = fmt.Sprintf("step %d", e.From)
	}
	return fmt.Sprintf("%s lacks %s, which the checkpoint of step %d has done: put the file back from a copy, or go on in a new run directory "+
		"with --resume-from and another run.name", e.Path, steps, e.Last)
}

// OpenSinks opens the sinks of a run: metrics.jsonl, which is the truth, and the others, which can be made from it. Lines of steps after
// run.Last are dropped everywhere: those steps will be done again, to the same values. A sink that lacks steps (because it was just added, or
// lost) gets them from metrics.jsonl.
func OpenSinks(run Run) (Sink, error) {
	path := filepath.Join(run.Dir, File)
	if err := run.checkHoles(path); err != nil {
		return nil, err
	}
	if err := Truncate(path, run.Last); err != nil {
		return nil, fmt.Errorf("metrics of an earlier attempt: %w", err)
	}
	jsonl, err := Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the metrics: %w", err)
	}
	list := sinks{jsonl}
	for _, kind := range Loggers[1:] {
		if !slices.Contains(run.Loggers, kind) {
			continue
		}
		var further Sink
		var last int
		switch kind {
		case "tensorboard":
			further, last, err = openTensorBoard(filepath.Join(run.Dir, kind), run.Last)
		case "wandb":
			further, last, err = openWandB(filepath.Join(run.Dir, kind), run)
		}
		if err == nil {
			list = append(list, further)
			err = catchUp(further, path, last)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("opening the %s log: %w", kind, err), list.Close())
		}
	}
	return list, nil
}

// catchUp gives a sink the steps after last that metrics.jsonl has.
func catchUp(s Sink, path string, last int) error {
	for record, err := range Read(path) {
		if err == nil && record.Step > last {
			err = s.Log(record.Step, record.Values)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkHoles wants every step up to the one to go on after.
func (r Run) checkHoles(path string) error {
	next := max(r.First, 1)
	if r.Last < next {
		return nil
	}
	hole := func(to int) error { return &HoleError{Path: path, From: next, To: to, Last: r.Last} }
	for record, err := range Read(path) {
		if errors.Is(err, os.ErrNotExist) {
			return hole(r.Last)
		}
		if err != nil {
			return err
		}
		if step := record.Step; step >= next && step <= r.Last {
			if step > next && !r.Sparse {
				return hole(step - 1)
			}
			next = step + 1
		}
	}
	if next <= r.Last {
		return hole(r.Last)
	}
	return nil
}

// sinks are several as one; the first is metrics.jsonl, whose failure keeps the others from going ahead of it.
type sinks []Sink

func (s sinks) Log(step int, values map[string]any) error {
	for _, sink := range s {
		if err := sink.Log(step, values); err != nil {
			return err
		}
	}
	return nil
}

func (s sinks) Close() error {
	var problems []error
	for _, sink := range s {
		problems = append(problems, sink.Close())
	}
	return errors.Join(problems...)
}

// Discard is where the metrics of processes go that write nothing.
type Discard struct{}

func (Discard) Log(int, map[string]any) error { return nil }
func (Discard) Close() error                  { return nil }
