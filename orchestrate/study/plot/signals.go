package plot

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"gyre/internal/atomicfile"
	"gyre/internal/figure"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
)

// Signal is an analysis in a table of them: what is varied from column to column, what from row to row, and the run or
// probe that holds it. Its last analysed step counts.
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
				return t, fmt.Errorf("%s/%s is missing: expected an analysis of each column in each row", t.columns[x],
					t.rows[y])
			}
			if other := t.cells[0][0]; profileOf(cell.record) != profileOf(other.record) {
				return t, fmt.Errorf("%s/%s has the %s, %s/%s the %s, and their norms mean different things",
					t.columns[x], t.rows[y],
					describeProfile(profileOf(cell.record)), t.columns[0], t.rows[0],
					describeProfile(profileOf(other.record)))
			}
		}
	}
	return t, nil
}

// DrawSignals writes a table of analyses as a PNG, the task gradient of each per bucket, and returns a sentence per
// column that says what the intervals allow to say.
func DrawSignals(ctx context.Context, title string, list []Signal, out string, dpi int) ([]string, error) {
	t, err := readSignals(list)
	if err != nil {
		return nil, err
	}
	f := t.figure(title)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := atomicfile.Write(out, func(w io.Writer) error { return f.PNG(w, dpi) }); err != nil {
		return nil, err
	}
	sentences := make([]string, len(t.columns))
	for x, column := range t.columns {
		sentences[x] = t.read(column, t.cells[x])
	}
	return sentences, nil
}

func (t signalTable) figure(title string) figure.Figure {
	profile := profileOf(t.cells[0][0].record)
	f := figure.Figure{Title: title, Width: 3.7, Height: 2, Caption: describeProfile(profile) +
		"; buckets by reward variance, Q1 = lowest"}
	f.Note(caveat(profile))
	columns := make([][]figure.Panel, len(t.columns)) // each form of the gradient has a range of its own
	for x, column := range t.columns {
		for y, row := range t.rows {
			cell := t.cells[x][y]
			columns[x] = append(columns[x], strengthPanel(cell.buckets, column+", "+row, task,
				intervalText(cell.record.Float("grad_analysis/confidence"))))
		}
	}
	arrange(&f, columns)
	return f
}

// read says of a column what its intervals tell of the groups that differ most and of those that differ least, and from
// which reward standard deviation on the gradient can be told from zero.
func (t signalTable) read(column string, cells []signalCell) string {
	largest := 0.0
	for _, cell := range cells {
		for _, b := range cell.buckets {
			s, _ := b.strength("task")
			largest = max(largest, s.signal)
		}
	}
	factor, power := unit(largest)
	most, told := t.end(cells, factor, func(list []bucket) bucket { return list[len(list)-1] })
	least, toldLeast := t.end(cells, factor, func(list []bucket) bucket { return list[0] })
	var from []string
	for y, cell := range cells {
		if text, ok := threshold(cell.buckets); ok {
			from, told = append(from, text+" "+t.rows[y]), true
		}
	}
	if !told && !toldLeast {
		return fmt.Sprintf("With %s nothing can be told apart here: groups that differ most %s, groups that differ "+
			"least %s.", column, most, least)
	}
	text := fmt.Sprintf("With %s, groups that differ most %s, groups that differ least %s", column, most, least)
	if len(from) > 0 {
		text += "; a gradient is seen from " + strings.Join(from, ", and from ")
	}
	return text + "; norms per group" + power + "."
}

// end says whether one end of the buckets has a gradient, row by row, with its estimates times factor; told, whether
// any has.
func (t signalTable) end(cells []signalCell, factor float64, at func([]bucket) bucket) (text string, told bool) {
	var words, rows []string
	for y, cell := range cells {
		estimate := "no interval"
		if s, ok := at(cell.buckets).strength("task"); ok && s.hasIntervals {
			estimate = fmt.Sprintf("%s [%s, %s]", figure.Short(factor*s.signal, 2), figure.Short(factor*s.low, 2),
				figure.Short(factor*s.high, 2))
			if s.low > 0 {
				rows = append(rows, t.rows[y])
			}
		}
		words = append(words, estimate+" "+t.rows[y])
	}
	verdict := "give a gradient that is not zero "
	switch len(rows) {
	case 0:
		verdict = "give one that cannot be told from zero "
	case len(cells):
	default:
		verdict += strings.Join(rows, ", ") + " only "
	}
	return verdict + "(" + strings.Join(words, ", ") + ")", len(rows) > 0
}

// threshold names the first bucket whose gradient is not zero and how strong it is beside the last one's; false where
// none has one or only the last.
func threshold(list []bucket) (string, bool) {
	last, _ := list[len(list)-1].strength("task")
	for _, b := range list[:len(list)-1] {
		s, ok := b.strength("task")
		std, known := b.get("reward_std_mean")
		if ok && known && s.hasIntervals && s.low > 0 && last.signal > 0 {
			return fmt.Sprintf("an in-group std of %s on (%s, %s times as strong as %s)", figure.Short(std, 2), b.label,
				figure.Short(s.signal/last.signal, 2), list[len(list)-1].label), true
		}
	}
	return "", false
}

// unit is a power of ten that makes values of a magnitude readable, and its name.
func unit(largest float64) (factor float64, power string) {
	if largest == 0 || largest >= 0.1 && largest < 1000 {
		return 1, ""
	}
	exponent := int(math.Floor(math.Log10(largest)))
	return math.Pow(10, float64(-exponent)), figure.Typographic(fmt.Sprintf(" (× 1e%d)", exponent))
}
