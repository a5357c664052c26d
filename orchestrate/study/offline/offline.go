// Package offline reads what runs have left (files of component gradients, histories of rewards, validation replies
// with their log-probs), ours or the rldynamic project's, and makes tables and figures of it. Package tracking writes
// the histories while a run goes on.
//
// What is not defined (the cosine of a gradient that is zero) is NaN here, null in JSON, empty in CSV and a gap in
// figures; it is never taken for 0.
package offline

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"gyre/internal/figure"
	"gyre/internal/quote"
	"gyre/internal/table"
	"gyre/orchestrate/loop/tracking"
	"gyre/orchestrate/run/rundir"
)

// Result is what was found, as a table and as a figure of it.
type Result struct {
	Table   *table.Table
	Figure  figure.Figure
	Skipped []string // files that could not be read, and why
}

var (
	steps      = figure.Axis{Label: "training step", Integer: true}
	cosineAxis = figure.Axis{Label: "cosine", Low: -1, High: 1}
)

const cosineKey = "grad_components/cosine/"

// Logged collects the cosines that a run has logged, each with the band in which unrelated components would lie. Steps
// are those of its metrics, from 1.
func Logged(r *rundir.Run) (Result, error) {
	t := table.New("step")
	f := figure.Figure{Name: "component_cosines.png", Title: r.Name + ": component gradients", Columns: 3, Width: 3.4,
		Height: 2.3, Caption: "line: cosine of the gradients; band: where the cosine of unrelated rewards would lie; " +
			"inside it, nothing is known"}
	var keys, titles []string
	for _, key := range r.Keys(cosineKey + "*/*") {
		a, b, _ := strings.Cut(strings.TrimPrefix(key, cosineKey), "/")
		name := a + "_" + b
		t.Columns = append(t.Columns, table.Column{Name: name, Low: name + "_low", High: name + "_high"})
		keys, titles = append(keys, key), append(titles, a+" · "+b)
	}
	if keys == nil {
		return Result{}, fmt.Errorf("%s has logged no cosines of components; see [components] in the configuration",
			r.Name)
	}
	for _, record := range r.Records {
		row, logged := []any{record.Step}, false
		for _, key := range keys {
			v, ok := rundir.Number(record, key)
			if !ok {
				row = append(row, nil)
				continue
			}
			cell := table.Cell{Value: v}
			low, ok1 := rundir.Number(record, key+"/low")
			high, ok2 := rundir.Number(record, key+"/high")
			if ok1 && ok2 {
				cell = table.Cell{Value: v, Low: low, High: high,
					Text: fmt.Sprintf("%.3g (by chance %.2g to %.2g)", v, low, high)}
			}
			row, logged = append(row, cell), true
		}
		if logged {
			t.Add(row...)
		}
	}
	for i, title := range titles {
		line := figure.Curve(t, "step", t.Columns[1+i].Name, "", figure.Blue)
		measured := figure.Mark{Kind: figure.Dots, X: line.X, Y: line.Y, Color: line.Color}
		f.Panels = append(f.Panels, figure.Panel{Title: title, X: steps, Y: cosineAxis,
			Marks: []figure.Mark{line, measured}})
	}
	return Result{Table: t, Figure: f}, nil
}

// Rewards shows the trends of an all_rewards.json, ours or rldynamic's.
func Rewards(path string) (Result, error) {
	var history struct {
		Metadata tracking.Metadata
		Steps    []struct {
			Step       int
			Statistics *tracking.Statistics
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return Result{}, err
	}
	if err := json.Unmarshal(text, &history); err != nil {
		return Result{}, fmt.Errorf("%s: not a history of rewards: %w", path, quote.JSON(err))
	}
	if len(history.Steps) == 0 {
		return Result{}, fmt.Errorf("%s: it has no steps", path)
	}
	t := table.New("step", "correctness", "format", "length_reward", "actual_length", "correct", "samples")
	for i, s := range history.Steps {
		x := s.Statistics
		if x == nil {
			return Result{}, fmt.Errorf("%s: entry %d of steps has no statistics", path, i)
		}
		t.Add(s.Step, float64(x.AvgCorrectness), float64(x.AvgFormat), float64(x.AvgLengthReward),
			float64(x.AvgActualLength), x.CorrectCount, x.TotalSamples)
	}
	axis := figure.Axis{Label: "step", Integer: true}
	return Result{Table: t, Figure: figure.Figure{Name: "reward_trends.png", Columns: 2, Width: 3.4, Height: 2.3,
		Title: fmt.Sprintf("Rewards of %s on %s", history.Metadata.Model, history.Metadata.Dataset),
		Panels: []figure.Panel{
			{Title: "Rewards", X: axis, Y: figure.Axis{Label: "mean"}, Marks: []figure.Mark{
				figure.Curve(t, "step", "correctness", "correctness", figure.Color(0)),
				figure.Curve(t, "step", "format", "format", figure.Color(1)),
				figure.Curve(t, "step", "length_reward", "length", figure.Color(2))}},
			{Title: "Length of replies", X: axis, Y: figure.Axis{Label: "characters"},
				Marks: []figure.Mark{figure.Curve(t, "step", "actual_length", "", figure.Color(0))}}}}}, nil
}

// Layers compares the components of a file of gradients layer by layer.
func Layers(path string) (Result, error) {
	g, err := OpenGradients(path)
	if err != nil {
		return Result{}, err
	}
	defer g.Close()
	layers, err := g.layers()
	if err != nil {
		return Result{}, err
	}
	t := table.New("layer", "parameters", "elements")
	for _, c := range g.Components {
		t.Columns = append(t.Columns, table.Column{Name: "norm_" + c})
	}
	t.Columns = append(t.Columns, pairColumns(g.Components)...)
	for _, l := range layers {
		row := []any{l.name, l.parameters, l.elements}
		for i := range g.Components {
			row = append(row, math.Sqrt(l.products[i][i]))
		}
		t.Add(append(row, l.cosines()...)...)
	}
	p := figure.Panel{X: figure.Axis{Label: "layer", Slanted: true}, Y: cosineAxis}
	single := *t
	single.Rows = slices.Clone(t.Rows[:len(t.Rows)-1]) // without all
	for _, row := range single.Rows {
		p.X.Names = append(p.X.Names, row[0].(string))
	}
	p.Marks = pairCurves(&single, "", g.Components)
	f := figure.Figure{Name: fmt.Sprintf("layer_similarity_step_%d.png", max(g.Step, 0)),
		Title:   fmt.Sprintf("Component gradients by layer, step %d", g.Step),
		Caption: "cosines of the gradients of a layer; a gap is a layer in which one of them is zero", Columns: 1,
		Width: min(max(5.2, float64(len(p.X.Names))*0.3+1.2), 16), Height: 3, Panels: []figure.Panel{p}}
	return Result{Table: t, Figure: f}, nil
}

// Parameter follows the cosines of one parameter (or of all of them, with name All) through a folder's files. Files
// that cannot be read are skipped: a run that was killed may have left one.
func Parameter(dir, name string) (Result, error) {
	paths, err := files(dir)
	if err != nil {
		return Result{}, err
	}
	r := Result{Table: table.New("step")}
	var components []string
	for _, path := range paths {
		row, names, err := cosinesOf(path, name, components)
		if err != nil {
			r.Skipped = append(r.Skipped, err.Error())
			continue
		}
		if components == nil {
			components = names
			r.Table.Columns = append(r.Table.Columns, pairColumns(names)...)
		}
		r.Table.Add(row...)
	}
	if components == nil {
		return r, fmt.Errorf("%s: none of %d files could be used; the first: %s", dir, len(paths), r.Skipped[0])
	}
	r.Figure = figure.Figure{Name: "parameter_similarity_over_time.png", Title: "Component gradients of " + name,
		Columns: 1, Width: 5.2, Height: 3,
		Caption: "cosines of the gradients; a gap is a step at which one of them is zero",
		Panels:  []figure.Panel{{X: steps, Y: cosineAxis, Marks: pairCurves(r.Table, "step", components)}}}
	return r, nil
}

// eachPair goes through pairs of names, each once, in order.
func eachPair(names []string, do func(a, b string)) {
	for i := range names {
		for _, other := range names[i+1:] {
			do(names[i], other)
		}
	}
}

func pairColumns(components []string) (out []table.Column) {
	eachPair(components, func(a, b string) { out = append(out, table.Column{Name: a + "_" + b}) })
	return out
}

func pairCurves(t *table.Table, x string, components []string) (out []figure.Mark) {
	eachPair(components, func(a, b string) {
		out = append(out, figure.Curve(t, x, a+"_"+b, a+" · "+b, figure.Color(len(out))))
	})
	return out
}
