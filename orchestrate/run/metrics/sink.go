// Package metrics writes down what happened: a run's metrics in their sinks, one line per step on the console,
// progress bars.
//
//	Sink ◀── metrics.jsonl (always: the truth), TensorBoard event files, programs that get every record (W&B, MLflow)
//
// metrics.jsonl holds one JSON object per step: "schema" (1) and "step" first, then the metrics in alphabetical order.
// A value is a number, a string, a boolean, a table ({"columns": […], "rows": [[…], …]}), or null where the number does
// not exist in that step (the cosine with a gradient of no length). JSON has no NaN and no
// infinity: they are written as the strings "NaN", "Infinity" and "-Infinity", which Read turns back into numbers.
// A line is on disk (fsync) before Log returns, so that after a crash the file ends with the last logged step, possibly
// followed by a torn line, which Open removes. The other sinks get what this file has when a run is opened, and then
// the same calls.
package metrics

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gyre/orchestrate/config"
)

// wandbSink is the program that feeds Weights & Biases. The binary carries it, so that it is found wherever that is
// installed; scripts has a link to it beside the programs that a configuration may name.
//
//go:embed wandb_sink.py
var wandbSink string

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
	Dir, ID, Name, Project string
	Config                 []byte          // the resolved configuration (TOML)
	Loggers                []config.Logger // jsonl is always there
	// First is the first step that this directory's metrics can have, Last the one to go on after (-1: none). All steps
	// from First (or 0, the validation before training) to Last must be there: a hole is an error.
	First, Last int
	// Sparse says that not every step has a line (supervised fine-tuning logs now and then).
	Sparse bool
	// Warn says what becomes of a logger that is a program.
	Warn func(format string, args ...any)
}

// OpenSinks opens the sinks of a run: metrics.jsonl, which is the truth, and the others, which are made from it.
// Lines of steps after run.Last are dropped everywhere: those steps will be done again, to the same values.
func OpenSinks(run Run) (Sink, error) {
	path := filepath.Join(run.Dir, File)
	if err := run.checkHoles(path); err != nil {
		return nil, err
	}
	jsonl, err := openUntil(path, run.Last)
	if err != nil {
		return nil, fmt.Errorf("opening the metrics: %w", err)
	}
	list := Sinks{jsonl}
	for i, l := range run.Loggers {
		var further Sink
		var err error
		switch l.Name {
		case "jsonl":
			continue
		case "tensorboard":
			further, err = openTensorBoard(run.Dir)
		case "wandb":
			further, err = openCommand(run, l.Name, []string{"python3", "-c", wandbSink}, commandPatience)
		default:
			further, err = openCommand(run, fmt.Sprintf("logger_%d", i), l.Command, commandPatience)
		}
		if err != nil {
			name := cmp.Or(l.Name, strings.Join(l.Command, " "))
			return nil, errors.Join(fmt.Errorf("opening the log %s: %w", name, err), list.Close())
		}
		list = append(list, further)
	}
	return list, nil
}

// checkHoles wants every step up to the one to go on after.
func (r Run) checkHoles(path string) error {
	next := max(r.First, 1)
	if r.Last < next {
		return nil
	}
	hole := func(to int) error {
		steps := fmt.Sprintf("steps %d to %d", next, to)
		if next == to {
			steps = fmt.Sprintf("step %d", to)
		}
		return fmt.Errorf("%s lacks %s, which the checkpoint of step %d has done: put the file back from a copy, or "+
			"go on in a new run directory with --resume-from and another run.name", path, steps, r.Last)
	}
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

// Sinks are several as one; the first is metrics.jsonl, whose failure keeps the others from going ahead of it. None
// are for processes that write nothing.
type Sinks []Sink

// Log implements Sink.
func (s Sinks) Log(step int, values map[string]any) error {
	for _, sink := range s {
		if err := sink.Log(step, values); err != nil {
			return err
		}
	}
	return nil
}

// Close implements Sink.
func (s Sinks) Close() error {
	var problems []error
	for _, sink := range s {
		problems = append(problems, sink.Close())
	}
	return errors.Join(problems...)
}
