package plot

import (
	"cmp"
	"fmt"
	"slices"

	"gyre/internal/figure"
	"gyre/internal/table"
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

// Signals draws the task gradient of each analysis per bucket, and says in a table which of them can be told from zero.
func Signals(title string, list []Signal) (f figure.Figure, results *table.Table, err error) {
	t, err := readSignals(list)
	if err != nil {
		return f, nil, err
	}
	first := t.cells[0][0]
	f = figure.Figure{Title: title, Width: 3.7, Height: 2, Caption: first.describe() +
		"; buckets by reward variance, Q1 = lowest"}
	f.Note(first.caveat())
	results = table.New("", "", "bucket", "std", "gradient per group", "it")
	for i := 3; i < 5; i++ {
		results.Columns[i].Format = "%.2g"
	}
	columns := make([][]figure.Panel, len(t.columns)) // each form of the gradient has a range of its own
	for x, column := range t.columns {
		for y, a := range t.cells[x] {
			columns[x] = append(columns[x], strengthPanel(a.buckets, column+", "+t.rows[y], task, a.intervals()))
			for _, b := range a.buckets {
				s := b.strength("task")
				verdict := cmp.Or(s.why, "may be zero")
				if s.low > 0 {
					verdict = "is not zero"
				}
				results.Add(column, t.rows[y], b.label, b.value("reward_std_mean"),
					table.Cell{Value: s.signal, Low: s.low, High: s.high}, verdict)
			}
		}
	}
	arrange(&f, columns)
	return f, results, nil
}
