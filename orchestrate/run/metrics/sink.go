package metrics

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gyre/orchestrate/config"
	"gyre/scripts"
)

// Sink is a place where metrics go. It belongs to one goroutine.
type Sink interface {
	// Log writes the metrics of one step. Steps increase.
	Log(step int, values map[string]any) error
	// Close puts everything on disk.
	Close() error
}

// File is the name of a run's metrics in its directory.
const File = "metrics.jsonl"

// Run says whose metrics are logged, and from where on.
type Run struct {
	Dir, ID, Name string
	Config        []byte          // the resolved configuration (TOML)
	Loggers       []config.Logger // jsonl is always there
	// First is the first step that this directory's metrics can have, Last the one to go on after (-1: none). All steps
	// from First (or 0, the validation before training) to Last must be there: a hole is an error.
	First, Last int
	// Sparse says that not every step has a line (supervised fine-tuning logs now and then).
	Sparse bool
	// Warn says what becomes of a logger that is a program.
	Warn func(format string, args ...any)
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
	return fmt.Sprintf("%s lacks %s, which the checkpoint of step %d has done: put the file back from a copy, or go "+
		"on in a new run directory with --resume-from and another run.name", e.Path, steps, e.Last)
}

// OpenSinks opens the sinks of a run: metrics.jsonl, which is the truth, and the others, which can be made from it.
// Lines of steps after run.Last are dropped everywhere: those steps will be done again, to the same values. A sink
// that lacks steps (because it was just added, or lost) gets them from metrics.jsonl.
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
	for i, l := range run.Loggers {
		further, err := openFurther(run, i, l)
		if err != nil {
			name := cmp.Or(l.Name, strings.Join(l.Command, " "))
			return nil, errors.Join(fmt.Errorf("opening the log %s: %w", name, err), list.Close())
		}
		if further != nil {
			list = append(list, further)
		}
	}
	return list, nil
}

// openFurther opens a sink beside metrics.jsonl, with the steps that are there; nil for metrics.jsonl itself.
func openFurther(run Run, i int, l config.Logger) (Sink, error) {
	switch l.Name {
	case "jsonl":
		return nil, nil
	case "tensorboard":
		events, last, err := openTensorBoard(filepath.Join(run.Dir, l.Name), run.Last)
		if err != nil {
			return nil, err
		}
		return events, catchUp(events, filepath.Join(run.Dir, File), last)
	case "wandb":
		return openCommand(run, l.Name, []string{"python3", "-c", scripts.WandBSink}, commandPatience)
	}
	return openCommand(run, fmt.Sprintf("logger_%d", i), l.Command, commandPatience)
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
