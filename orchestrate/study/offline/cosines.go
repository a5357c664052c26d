package offline

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gyre/internal/figure"
	"gyre/internal/table"
	"gyre/orchestrate/run/rundir"
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
			row, low, high = append(row, at(key, record.Step)), append(low, at(key+"/low", record.Step)),
				append(high, at(key+"/high", record.Step))
		}
		s.Steps, s.Cosines = append(s.Steps, record.Step), append(s.Cosines, row)
		s.Low, s.High = append(s.Low, low), append(s.High, high)
	}
	return s, nil
}

// Table is the series for reading and for CSV.
func (s *Series) Table() *table.Table {
	t := table.New("step")
	for _, p := range s.Pairs {
		name := p[0] + "_" + p[1]
		t.Columns = append(t.Columns, table.Column{Name: name})
		if s.Low != nil {
			t.Columns = append(t.Columns, table.Column{Name: name + "_low"}, table.Column{Name: name + "_high"})
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
		t.Add(row...)
	}
	return t
}

var cosineAxis = figure.Axis{Label: "cosine", Low: -1, High: 1}

// Figure draws the series: one panel, or one per pair where there are bands.
func (s *Series) Figure(name, title string) figure.Figure {
	f := figure.Figure{Name: name, Title: title, Columns: 3, Width: 3.4, Height: 2.3,
		Caption: "line: cosine of the gradients; band: where it would lie if the rewards were dealt at random; " +
			"inside it, nothing is known"}
	single := figure.Panel{X: figure.Axis{Label: "training step", Integer: true}, Y: cosineAxis}
	for k, p := range s.Pairs {
		m := figure.Mark{Label: p[0] + " · " + p[1], Color: figure.Color(k)}
		for i, step := range s.Steps {
			if m.Add(float64(step), s.Cosines[i][k]); s.Low != nil {
				m.Low, m.High = append(m.Low, s.Low[i][k]), append(m.High, s.High[i][k])
			}
		}
		if s.Low == nil {
			single.Add(m)
			continue
		}
		m.Color = figure.Blue
		f.Panels = append(f.Panels, figure.Panel{Title: m.Label, X: single.X, Y: cosineAxis, Marks: []figure.Mark{m}})
	}
	if s.Low == nil {
		f.Caption, f.Panels, f.Width,
			f.Height = "cosines of the gradients; a gap is a step at which one of them is zero", []figure.Panel{single},
			5.2, 3
	}
	return f
}

// LayersTable is the layers for reading and for CSV.
func LayersTable(components []string, layers []Layer) *table.Table {
	t := table.New("layer", "parameters", "elements")
	for _, c := range components {
		t.Columns = append(t.Columns, table.Column{Name: "norm_" + c})
	}
	for _, p := range pairsOf(components) {
		t.Columns = append(t.Columns, table.Column{Name: p[0] + "_" + p[1]})
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
		t.Add(row...)
	}
	return t
}

// LayersFigure draws the cosines by layer.
func LayersFigure(name, title string, components []string, layers []Layer) figure.Figure {
	p := figure.Panel{X: figure.Axis{Label: "layer", Slanted: true}, Y: cosineAxis}
	layers = slices.DeleteFunc(slices.Clone(layers), func(l Layer) bool { return l.Name == All })
	for _, l := range layers {
		p.X.Names = append(p.X.Names, l.Name)
	}
	for i, a := range components {
		for j := i + 1; j < len(components); j++ {
			m := figure.Mark{Label: a + " · " + components[j], Color: figure.Color(len(p.Marks))}
			for x, l := range layers {
				m.Add(float64(x), l.Cosine(i, j))
			}
			p.Add(m)
		}
	}
	return figure.Figure{Name: name, Title: title,
		Caption: "cosines of the gradients of a layer; a gap is a layer in which one of them is zero", Columns: 1,
		Width: min(max(5.2, float64(len(layers))*0.3+1.2), 16), Height: 3, Panels: []figure.Panel{p}}
}
