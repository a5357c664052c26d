package plot

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/run/rundir"
)

// Options of Draw.
type Options struct {
	Dir       string // where the files go; the run's plots folder when empty
	Steps     []int  // draw the gradient analysis of these steps only
	DPI       int    // resolution of the pictures; PrintDPI when 0
	Prefilter bool   // draw the analysis of the episodes before filtering (analysis.log_prefilter)
	// Wrote is told every file's path, Note what could not be drawn and why.
	Wrote, Note func(string)
}

// StepsError means that steps were asked for which were not analysed.
type StepsError struct{ Missing, Available []int }

func (e *StepsError) Error() string {
	if len(e.Available) == 0 {
		return fmt.Sprintf("step %s: no step of this run has a gradient analysis; see [analysis] in the configuration", join(e.Missing))
	}
	return fmt.Sprintf("step %s has no gradient analysis; analysed: %s", join(e.Missing), join(e.Available))
}

func join(steps []int) string {
	texts := make([]string, len(steps))
	for i, s := range steps {
		texts[i] = fmt.Sprint(s)
	}
	return strings.Join(texts, ", ")
}

// Draw writes a run's figures: without Steps the training curves, the gradient analysis of every analysed step and, from three of
// them on, their comparison; with Steps the gradient analysis of those. What a broken metrics file still holds is drawn before
// its error is returned.
func Draw(ctx context.Context, r *rundir.Run, o Options) error {
	dir, prefix := o.Dir, prefixOf(o.Prefilter)
	if dir == "" {
		dir = filepath.Join(r.Dir, "plots")
		if o.Prefilter {
			dir = filepath.Join(dir, "prefilter")
		}
	}
	out := output{ctx: ctx, dir: dir, options: o}
	available := AnalysedSteps(r, o.Prefilter)
	steps := available
	if len(o.Steps) > 0 {
		steps = slices.Compact(slices.Sorted(slices.Values(o.Steps)))
		missing := slices.DeleteFunc(slices.Clone(steps), func(s int) bool { return slices.Contains(available, s) })
		if len(missing) > 0 {
			return &StepsError{Missing: missing, Available: available}
		}
	} else if !o.Prefilter {
		f := training(r)
		if len(f.panels) == 0 {
			o.Note("no training curves: the metrics file has none of the metrics they show")
		} else if err := out.figure("training.png", f); err != nil {
			return err
		}
	}
	for _, step := range steps {
		record, _ := r.At(step)
		if err := newStep(r.Name, record, prefix).draw(&out); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
	}
	switch {
	case len(available) == 0:
		o.Note("no step has a gradient analysis")
	case len(o.Steps) == 0:
		f, ok, err := threeSteps(r, prefix)
		if err != nil {
			o.Note(err.Error())
		} else if ok {
			if err := out.figure("gradient_analysis_steps.png", f); err != nil {
				return err
			}
		}
	}
	return r.Broken
}

// output writes files into a folder.
type output struct {
	ctx     context.Context
	dir     string
	options Options
}

func (o *output) figure(name string, f figure) error {
	return o.file(name, func(w io.Writer) error { return f.Render(w, cmp.Or(o.options.DPI, PrintDPI)) })
}

// file writes one file, unless the caller wants to stop.
func (o *output) file(name string, content func(io.Writer) error) error {
	if o.ctx.Err() != nil {
		return context.Cause(o.ctx)
	}
	path := filepath.Join(o.dir, name)
	if err := atomicfile.Write(path, content); err != nil {
		return err
	}
	o.options.Wrote(path)
	return nil
}
