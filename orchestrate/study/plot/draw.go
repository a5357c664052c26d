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
	"gyre/internal/figure"
	"gyre/orchestrate/run/rundir"
)

// Options of Draw.
type Options struct {
	Dir       string // where the files go; the run's plots folder when empty
	Steps     []int  // draw the gradient analysis of these steps only
	DPI       int    // resolution of the pictures; figure.PrintDPI when 0
	Prefilter bool   // draw the analysis of the episodes before filtering (analysis.log_prefilter)
	// Wrote is called with every file's path, Note with what could not be drawn and why.
	Wrote, Note func(string)
}

// StepsError means that steps were asked for which were not analysed.
type StepsError struct{ Missing, Available []int }

func (e *StepsError) Error() string {
	if len(e.Available) == 0 {
		return fmt.Sprintf("step %s: no step of this run has a gradient analysis; see [analysis] in the configuration",
			join(e.Missing))
	}
	return fmt.Sprintf("step %s has no gradient analysis; analysed: %s", join(e.Missing), join(e.Available))
}

func join(steps []int) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(steps), "[]"), " ", ", ")
}

// Draw writes a run's figures: without Steps the training curves, the gradient analysis of every analysed step and,
// from three of them on, their comparison; with Steps the gradient analysis of those. What a broken metrics file still
// holds is drawn before its error is returned.
func Draw(ctx context.Context, r *rundir.Run, o Options) error {
	prefix := postFilter
	if o.Prefilter {
		prefix = preFilter
	}
	dir := cmp.Or(o.Dir, filepath.Join(r.Dir, "plots", strings.TrimPrefix(strings.TrimPrefix(prefix, postFilter), "_")))
	out := output{ctx: ctx, dir: dir, options: o}
	available := AnalysedSteps(r, o.Prefilter)
	steps := available
	if len(o.Steps) > 0 {
		steps = slices.Compact(slices.Sorted(slices.Values(o.Steps)))
		missing := slices.DeleteFunc(slices.Clone(steps), func(s int) bool { return slices.Contains(available, s) })
		if len(missing) > 0 {
			return &StepsError{Missing: missing, Available: available}
		}
	} else if f := Training(r); !o.Prefilter && len(f.Panels) == 0 {
		o.Note("no training curves: the metrics file has none of the metrics they show")
	} else if !o.Prefilter {
		if err := out.figure(f); err != nil {
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
		if f, err := threeSteps(r, prefix); err != nil {
			o.Note(err.Error())
		} else if len(f.Panels) > 0 {
			if err := out.figure(f); err != nil {
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

func (o *output) figure(f figure.Figure) error {
	return o.file(f.Name, func(w io.Writer) error { return f.PNG(w, cmp.Or(o.options.DPI, figure.PrintDPI)) })
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
