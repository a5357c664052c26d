// Package plot makes the figures of runs and studies from what they logged.
//
//	metrics.jsonl ──▶ rundir.Run ──┬──▶ training.png                      curves over the steps
//	                               ├──▶ timeline.png                      who sampled, trained, waited: from schedule.jsonl
//	                               ├──▶ budget.png                        noise of the batches, predicted and realised
//	                               ├──▶ gradient_analysis_*_step_N.*      one analysed step: bars, reward std, JSON, CSV
//	                               └──▶ gradient_analysis_steps.png       first, middle and last analysed step
//	metrics.json × 3 ─────────────────▶ ExportedSteps                     the same comparison from exported steps
//
// The file names, and what each one shows, are those of RAGEN's plotting scripts (docs/guide_gradient_analysis of that
// project). A gradient that was not computed is named in the caption and never drawn as zero. Package figure draws.
package plot

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"gyre/internal/atomicfile"
	"gyre/internal/figure"
	"gyre/orchestrate/run/rundir"
)

// File is a file of a run. Pictures have a resolution in dots per inch.
type File struct {
	Name  string
	Write func(w io.Writer, dpi int) error
}

// Save writes the file.
func (f File) Save(path string, dpi int) error {
	return atomicfile.Write(path, func(w io.Writer) error { return f.Write(w, dpi) })
}

// Draw makes a run's files: without steps the training curves, the gradient analysis of every analysed step and, from
// three of them on, their comparison; with steps the gradient analysis of those. With prefilter the analyses are those
// of the episodes before the rollout filter. Notes say what could not be drawn and why.
func Draw(r *rundir.Run, steps []int, prefilter bool) (files []File, notes []string, err error) {
	available, whole := AnalysedSteps(r, prefilter), len(steps) == 0
	missing := slices.DeleteFunc(slices.Clone(steps), func(s int) bool { return slices.Contains(available, s) })
	switch {
	case len(missing) > 0:
		return nil, nil, stepsError(slices.Compact(slices.Sorted(slices.Values(missing))), available)
	case !whole:
		steps = slices.Compact(slices.Sorted(slices.Values(steps)))
	default:
		steps = available
	}
	add := func(f figure.Figure, problem error) {
		if problem != nil {
			notes = append(notes, problem.Error())
		} else if len(f.Panels) > 0 {
			files = append(files, File{f.Name, f.PNG})
		}
	}
	if whole && !prefilter {
		if add(Training(r), nil); len(files) == 0 {
			notes = append(notes, "no training curves: the metrics file has none of the metrics they show")
		}
		add(Timeline(r))
		if f, err := Budget(r); err == nil { // most runs have none
			add(f, nil)
		}
	}
	for _, step := range steps {
		record, _ := r.At(step)
		list, note := newStep(r.Name, record, prefixOf(prefilter)).files()
		files = append(files, list...)
		if note != "" {
			notes = append(notes, note)
		}
	}
	if len(available) == 0 {
		notes = append(notes, "no step has a gradient analysis")
	} else if whole {
		add(Steps(r, prefilter))
	}
	return files, notes, nil
}

// ErrNotAnalysed means that steps were asked for which were not analysed.
var ErrNotAnalysed = errors.New("no gradient analysis")

func stepsError(missing, available []int) error {
	join := func(steps []int) string {
		return strings.ReplaceAll(strings.Trim(fmt.Sprint(steps), "[]"), " ", ", ")
	}
	return fmt.Errorf("step %s has %w; analysed: %s", join(missing), ErrNotAnalysed,
		cmp.Or(join(available), "none, see [analysis] in the configuration"))
}
