package offline

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gyre/orchestrate/run/rundir"
	"gyre/orchestrate/study/plot"
)

const cosineKey = "grad_components/cosine/"

// Logged collects the cosines that a run has logged, with their bands. Steps are those of its metrics, from 1.
func Logged(r *rundir.Run) (*Series, error) {
	s := &Series{}
	var keys []string
	for _, key := range r.Keys(cosineKey + "*/*") {
		if parts := strings.Split(strings.TrimPrefix(key, cosineKey), "/"); len(parts) == 2 {
			keys = append(keys, key)
			s.Pairs = append(s.Pairs, [2]string{parts[0], parts[1]})
		}
	}
	if keys == nil {
		return nil, fmt.Errorf("%s has logged no cosines of components; see [components] in the configuration", r.Name)
	}
	at := func(key string, step int) float64 {
		if record, ok := r.At(step); ok {
			if v, ok := rundir.Number(record, key); ok {
				return v
			}
		}
		return math.NaN()
	}
	for _, record := range r.Records {
		if !slices.ContainsFunc(keys, func(key string) bool { _, logged := record.Values[key]; return logged }) {
			continue
		}
		var row, low, high []float64
		for _, key := range keys {
			row, low, high = append(row, at(key, record.Step)), append(low, at(key+"/low", record.Step)), append(high, at(key+"/high", record.Step))
		}
		s.Steps, s.Cosines = append(s.Steps, record.Step), append(s.Cosines, row)
		s.Low, s.High = append(s.Low, low), append(s.High, high)
	}
	return s, nil
}

// Table is the series for reading and for CSV.
func (s *Series) Table() (header []string, rows [][]any) {
	header = []string{"step"}
	for _, p := range s.Pairs {
		header = append(header, p[0]+"_"+p[1])
		if s.Low != nil {
			header = append(header, p[0]+"_"+p[1]+"_low", p[0]+"_"+p[1]+"_high")
		}
	}
	for i, step := range s.Steps {
		row := []any{step}
		for k := range s.Pairs {
			row = append(row, s.Cosines[i][k])
			if s.Low != nil {
				row = append(row, s.Low[i][k], s.High[i][k])
			}
		}
		rows = append(rows, row)
	}
	return header, rows
}

// Figure draws the series: one panel, or one per pair where there are bands.
func (s *Series) Figure(name, title string) plot.Picture {
	column := func(of [][]float64, k int) (out []float64) {
		for _, row := range of {
			out = append(out, row[k])
		}
		return out
	}
	steps := make([]float64, len(s.Steps))
	for i, step := range s.Steps {
		steps[i] = float64(step)
	}
	var charts []plot.Chart
	single := plot.Chart{X: "training step", Y: "cosine", Within: [2]float64{-1, 1}}
	for k, p := range s.Pairs {
		l := plot.Line{Label: p[0] + " · " + p[1], X: steps, Y: column(s.Cosines, k)}
		if s.Low == nil {
			single.Lines = append(single.Lines, l)
			continue
		}
		l.Low, l.High = column(s.Low, k), column(s.High, k)
		charts = append(charts, plot.Chart{Title: l.Label, X: "training step", Y: "cosine", Within: [2]float64{-1, 1}, Lines: []plot.Line{l}})
	}
	if s.Low == nil {
		return plot.Lines(name, title, "cosines of the gradients; a gap is a step at which one of them is zero", 1, single)
	}
	return plot.Lines(name, title, "line: cosine of the gradients; band: where it would lie if the rewards were dealt at random; inside it, nothing is known",
		3, charts...)
}

// LayersTable is the layers for reading and for CSV.
func LayersTable(components []string, layers []Layer) (header []string, rows [][]any) {
	header = []string{"layer", "parameters", "elements"}
	for _, c := range components {
		header = append(header, "norm_"+c)
	}
	pairs := pairsOf(components)
	for _, p := range pairs {
		header = append(header, p[0]+"_"+p[1])
	}
	for _, l := range layers {
		row := []any{l.Name, l.Parameters, l.Elements}
		for i := range components {
			row = append(row, l.Norm(i))
		}
		for i := range components {
			for j := i + 1; j < len(components); j++ {
				row = append(row, l.Cosine(i, j))
			}
		}
		rows = append(rows, row)
	}
	return header, rows
}

// LayersFigure draws the cosines by layer.
func LayersFigure(name, title string, components []string, layers []Layer) plot.Picture {
	chart := plot.Chart{X: "layer", Y: "cosine", Within: [2]float64{-1, 1}}
	layers = slices.DeleteFunc(slices.Clone(layers), func(l Layer) bool { return l.Name == All })
	for _, l := range layers {
		chart.Names = append(chart.Names, l.Name)
	}
	for i, a := range components {
		for j := i + 1; j < len(components); j++ {
			line := plot.Line{Label: a + " · " + components[j]}
			for x, l := range layers {
				line.X, line.Y = append(line.X, float64(x)), append(line.Y, l.Cosine(i, j))
			}
			chart.Lines = append(chart.Lines, line)
		}
	}
	return plot.Lines(name, title, "cosines of the gradients of a layer; a gap is a layer in which one of them is zero", 1, chart)
}
