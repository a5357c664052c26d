package plot

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/metrics"
	"gyre/orchestrate/rundir"
)

// Signal is an analysis in a table of them: what is varied from column to column, what from row to row, and the run or probe that holds it. Its
// last analysed step counts.
type Signal struct{ Column, Row, Path string }

// signalTable has the analyses by column and row, both in the order of their first appearance.
type signalTable struct {
	columns, rows []string
	cells         [][]signalCell // [column][row]
}

type signalCell struct {
	record  metrics.Record
	buckets []bucket // without "all"
}

func readSignals(list []Signal) (signalTable, error) {
	var t signalTable
	for _, s := range list {
		if !slices.Contains(t.columns, s.Column) {
			t.columns = append(t.columns, s.Column)
		}
		if !slices.Contains(t.rows, s.Row) {
			t.rows = append(t.rows, s.Row)
		}
	}
	for range t.columns {
		t.cells = append(t.cells, make([]signalCell, len(t.rows)))
	}
	for _, s := range list {
		run, err := rundir.Read(s.Path)
		if err != nil {
			return t, err
		}
		steps := AnalysedSteps(run, false)
		if len(steps) == 0 {
			return t, fmt.Errorf("%s: no step has a gradient analysis", s.Path)
		}
		record, _ := run.At(steps[len(steps)-1])
		cell := &t.cells[slices.Index(t.columns, s.Column)][slices.Index(t.rows, s.Row)]
		if cell.buckets != nil {
			return t, fmt.Errorf("%s/%s is given twice: expected one analysis of each", s.Column, s.Row)
		}
		*cell = signalCell{record, proper(buckets(record, postFilter))}
	}
	for x, column := range t.cells {
		for y, cell := range column {
			if cell.buckets == nil {
				return t, fmt.Errorf("%s/%s is missing: expected an analysis of each column in each row", t.columns[x], t.rows[y])
			}
			if other := t.cells[0][0]; profileOf(cell.record) != profileOf(other.record) {
				return t, fmt.Errorf("%s/%s has the %s, %s/%s the %s, and their norms mean different things", t.columns[x], t.rows[y],
					describeProfile(profileOf(cell.record)), t.columns[0], t.rows[0], describeProfile(profileOf(other.record)))
			}
		}
	}
	return t, nil
}

// DrawSignals writes a table of analyses as a PNG, the task gradient of each per bucket, and returns a sentence per column that says what the
// intervals allow to say.
func DrawSignals(ctx context.Context, title string, list []Signal, out string, dpi int) ([]string, error) {
	t, err := readSignals(list)
	if err != nil {
		return nil, err
	}
	profile := profileOf(t.cells[0][0].record)
	f := figure{title: title, columns: len(t.columns), width: 3.3 * vg.Inch, height: 2.2 * vg.Inch,
		caption: describeProfile(profile) + "; reward-spread buckets, Q1 = lowest" + caveat(profile)}
	for y, row := range t.rows {
		for x, column := range t.columns {
			cell := t.cells[x][y]
			f.panels = append(f.panels, strengthPanel(cell.buckets, column+", "+row, components[2:], intervalText(cell.record.Float("grad_analysis/confidence"))))
		}
	}
	for x := range t.columns { // each form of the gradient has a scale of its own
		var plots []*plot.Plot
		for i := x; i < len(f.panels); i += len(t.columns) {
			plots = append(plots, f.panels[i].plot)
		}
		shareRange(plots)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := atomicfile.Write(out, func(w io.Writer) error { return f.Render(w, dpi) }); err != nil {
		return nil, err
	}
	sentences := make([]string, len(t.columns))
	for x, column := range t.columns {
		sentences[x] = t.read(column, t.cells[x])
	}
	return sentences, nil
}

// read says of a column what its intervals tell of the groups that differ most and of those that differ least.
func (t signalTable) read(column string, cells []signalCell) string {
	type end struct {
		name  string
		at    func([]bucket) bucket
		told  []bool
		words []string
	}
	ends := []end{
		{name: "differ most", at: func(list []bucket) bucket { return list[len(list)-1] }},
		{name: "differ least", at: func(list []bucket) bucket { return list[0] }},
	}
	told := false
	var noise []string
	for y, cell := range cells {
		for i := range ends {
			s, ok := ends[i].at(cell.buckets).strength("task")
			text := "no interval"
			if ok && s.hasIntervals {
				text = fmt.Sprintf("%s [%s, %s]", short(s.signal, 2), short(s.low, 2), short(s.high, 2))
			}
			apart := s.hasIntervals && s.low > 0
			told = told || apart
			ends[i].told = append(ends[i].told, apart)
			ends[i].words = append(ends[i].words, text+" "+t.rows[y])
		}
		most, _ := ends[0].at(cell.buckets).strength("task")
		least, _ := ends[1].at(cell.buckets).strength("task")
		if most.measured > 0 {
			noise = append(noise, short(least.measured/most.measured, 2))
		}
	}
	parts := make([]string, len(ends))
	for i, e := range ends {
		parts[i] = fmt.Sprintf("groups that %s %s (%s)", e.name, verdict(e.told, t.rows), strings.Join(e.words, ", "))
	}
	if !told {
		parts = append(parts, "nothing can be told apart here")
	}
	return fmt.Sprintf("With %s, %s; the norm measured where groups differ least, noise included, is %s times that where they differ most.",
		column, strings.Join(parts, ", "), strings.Join(noise, " and "))
}

// verdict says in which rows an interval excludes zero.
func verdict(told []bool, rows []string) string {
	var names []string
	for y, ok := range told {
		if ok {
			names = append(names, rows[y])
		}
	}
	switch len(names) {
	case 0:
		return "give a gradient that cannot be told from zero"
	case len(rows):
		return "give a gradient that is not zero"
	}
	return "give a gradient that is not zero " + strings.Join(names, ", ") + " only"
}
