package plot

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gyre/internal/figure"
	"gyre/orchestrate/run/rundir"
)

// Signal is an analysis in a table of them: what is varied from column to column, what from row to row, and the run or
// probe that holds it. Its last analysed step counts.
type Signal struct{ Column, Row, Path string }

// signalTable has the analyses by column and row, both in the order of their first appearance.
type signalTable struct {
	columns, rows []string
	cells         [][]analysis // [column][row]
}

func readSignals(list []Signal) (t signalTable, err error) {
	place := func(names *[]string, name string) int {
		if !slices.Contains(*names, name) {
			*names = append(*names, name)
		}
		return slices.Index(*names, name)
	}
	found := map[[2]int]analysis{}
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
		at, name := [2]int{place(&t.columns, s.Column), place(&t.rows, s.Row)}, s.Column+"/"+s.Row
		if _, twice := found[at]; twice {
			return t, fmt.Errorf("%s is given twice: expected one analysis of each", name)
		}
		found[at] = newAnalysis(name, record, postFilter)
	}
	for x, column := range t.columns {
		var cells []analysis
		for y, row := range t.rows {
			a, ok := found[[2]int{x, y}]
			if !ok {
				return t, fmt.Errorf("%s/%s is missing: expected an analysis of each column in each row", column, row)
			}
			cells = append(cells, a)
		}
		t.cells = append(t.cells, cells)
	}
	return t, comparable(slices.Concat(t.cells...))
}

// Signals draws a table of analyses, the task gradient of each per bucket, and says in a sentence per column what the
// intervals allow to say.
func Signals(title string, list []Signal) (f figure.Figure, sentences []string, err error) {
	t, err := readSignals(list)
	if err != nil {
		return f, nil, err
	}
	first := t.cells[0][0]
	f = figure.Figure{Title: title, Width: 3.7, Height: 2, Caption: first.describe() +
		"; buckets by reward variance, Q1 = lowest"}
	f.Note(first.caveat())
	columns := make([][]figure.Panel, len(t.columns)) // each form of the gradient has a range of its own
	for x, column := range t.columns {
		for y, a := range t.cells[x] {
			columns[x] = append(columns[x], strengthPanel(a.buckets, column+", "+t.rows[y], task, a.intervals()))
		}
		sentences = append(sentences, t.read(column, t.cells[x]))
	}
	arrange(&f, columns)
	return f, sentences, nil
}

// read says of a column what its intervals tell of the groups that differ most and of those that differ least, and from
// which reward standard deviation on the gradient can be told from zero.
func (t signalTable) read(column string, cells []analysis) string {
	largest := 0.0
	for _, cell := range cells {
		for _, b := range cell.buckets {
			if s := b.strength("task").signal; s > largest {
				largest = s
			}
		}
	}
	factor, power := figure.Unit(largest)
	most, seen := t.end(cells, factor, func(list []bucket) bucket { return list[len(list)-1] })
	least, seenLeast := t.end(cells, factor, func(list []bucket) bucket { return list[0] })
	var from []string
	for y, cell := range cells {
		if text, ok := threshold(cell.buckets); ok {
			from = append(from, text+" "+t.rows[y])
		}
	}
	ends := fmt.Sprintf("groups that differ most %s, groups that differ least %s", most, least)
	switch {
	case len(from) > 0:
		return fmt.Sprintf("With %s, %s; a gradient is seen from %s; norms per group%s.", column, ends,
			strings.Join(from, ", and from "), power)
	case seen || seenLeast:
		return fmt.Sprintf("With %s, %s; norms per group%s.", column, ends, power)
	}
	return fmt.Sprintf("With %s nothing can be told apart here: %s.", column, ends)
}

// end says whether one end of the buckets has a gradient, row by row, with its estimates times factor; seen, whether
// any has.
func (t signalTable) end(cells []analysis, factor float64, at func([]bucket) bucket) (text string, seen bool) {
	var words, rows []string
	for y, cell := range cells {
		estimate, s := "no interval", at(cell.buckets).strength("task")
		if !math.IsNaN(s.signal + s.low + s.high) {
			estimate = fmt.Sprintf("%s [%s, %s]", figure.Short(factor*s.signal, 2), figure.Short(factor*s.low, 2),
				figure.Short(factor*s.high, 2))
		}
		if s.low > 0 {
			rows = append(rows, t.rows[y])
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
	last := list[len(list)-1]
	for _, b := range list[:len(list)-1] {
		s, std, end := b.strength("task"), b.value("reward_std_mean"), last.strength("task").signal
		if s.low > 0 && !math.IsNaN(std) && end > 0 {
			return fmt.Sprintf("an in-group std of %s on (%s, %s times as strong as %s)", figure.Short(std, 2), b.label,
				figure.Short(s.signal/end, 2), last.label), true
		}
	}
	return "", false
}
