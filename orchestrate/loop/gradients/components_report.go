package gradients

import (
	"fmt"
	"io"
	"math"

	"gyre/internal/statistics"
	"gyre/internal/table"
	"gyre/orchestrate/run/metrics"
	"gyre/torch"
)

// ComponentReport is what the gradients of reward components are like. A number that does not exist (the cosine with
// a gradient of no length) is null wherever the report goes.
type ComponentReport struct {
	Names      []string // the components, entropy and KL where the loss has them, the total
	Components int      // so many of them are components of the reward
	Bytes      int64

	parameters []torch.Parameter
	gram       gram
	bands      map[[2]int]Band // by pair; none where rewards are not permuted
	checks     map[string]any
}

// ComponentMetrics is the report as it is logged. Values are null where they do not exist.
type ComponentMetrics struct {
	Memory float64            `metric:"grad_components/memory_mib" unit:"MiB" doc:"what the measurement held"`
	Checks map[string]any     `metric:"grad_components/check/{check}" doc:"sum_cosine: cosine of Σ g_component with g_total; sum_error: ‖Σ w g_component − g_total‖ / ‖g_total‖, where it must be 0 up to rounding"`
	Whole  Similarity         `metric:"grad_components"`
	Low    map[string]float64 `metric:"grad_components/cosine/{a}/low" doc:"where a cosine would lie, with 95 % confidence, if the rewards of one said nothing of the other's"`
	High   map[string]float64 `metric:"grad_components/cosine/{a}/high" doc:"the upper end"`
	Table  metrics.Table      `metric:"grad_components/table" doc:"by layer and kind of parameter: pair, cosine, norms"`
}

// Similarity is what gradients are like, alone and in pairs a/b.
type Similarity struct {
	Norms   map[string]float64 `metric:"norm/{component}" unit:"loss per parameter" doc:"L2 norm of the component's gradient"`
	Cosines map[string]any     `metric:"cosine/{pair}" unit:"−1 to 1" doc:"cosine of two of them, in the order of weights, then entropy, kl, total"`
	BySize  map[string]any     `metric:"cosine_by_size/{pair}" unit:"−1 to 1" doc:"mean of the parameters' cosines weighted by their size: another number than the cosine"`
}

// Apart are the pairs of components whose gradients work against each other more than by chance.
func (r *ComponentReport) Apart() (out [][2]string) {
	for i := range r.Components {
		for j := i + 1; j < r.Components; j++ {
			cosine, ok := r.gram.cosine(i, j, everything)
			if band, banded := r.bands[[2]int{i, j}]; ok && banded && cosine < min(band.Low, 0) {
				out = append(out, [2]string{r.Names[i], r.Names[j]})
			}
		}
	}
	return out
}

// check compares the components' sum with the total. The squares come from inner products in float64 of float32 sums:
// a sum that holds exactly shows as 1e-7 or so.
func (r *ComponentReport) check(a Advantages) {
	last := len(r.Names) - 1
	sum := func(weight func(component int) float64) (square, with float64) {
		for i := range r.Components {
			for j := range r.Components {
				square += weight(i) * weight(j) * r.gram.inner(i, j, everything)
			}
			with += weight(i) * r.gram.inner(i, last, everything)
		}
		return square, with
	}
	total := r.gram.inner(last, last, everything)
	square, with := sum(func(int) float64 { return 1 })
	r.checks = map[string]any{"sum_cosine": null(statistics.Cosine(with, square, total))}
	if a.Linear {
		square, with = sum(func(component int) float64 { return a.Weights[component] })
		r.checks["sum_error"] = null(math.Sqrt(max(square-2*with+total, 0)/total), total > 0)
	}
}

// null is a number, or nil where it does not exist.
func null(v float64, exists bool) any {
	if !exists {
		return nil
	}
	return v
}

// Metrics are the numbers of the report, and its table without single parameters.
func (r *ComponentReport) Metrics() ComponentMetrics {
	m := ComponentMetrics{Memory: float64(r.Bytes) / (1 << 20), Checks: r.checks, Whole: r.similarity(r.gram),
		Low: map[string]float64{}, High: map[string]float64{}}
	for pair, band := range r.bands {
		name := r.Names[pair[0]] + "/" + r.Names[pair[1]]
		m.Low[name], m.High[name] = band.Low, band.High
	}
	t := r.table(r.scopes())
	for _, c := range t.Columns {
		m.Table.Columns = append(m.Table.Columns, c.Name)
	}
	m.Table.Rows = t.Rows
	return m
}

func (r *ComponentReport) similarity(g gram) Similarity {
	s := Similarity{map[string]float64{}, map[string]any{}, map[string]any{}}
	for i, a := range r.Names {
		s.Norms[a] = g.norm(i, everything)
		for j := i + 1; j < len(r.Names); j++ {
			s.Cosines[a+"/"+r.Names[j]] = null(g.cosine(i, j, everything))
			s.BySize[a+"/"+r.Names[j]] = null(g.cosineBySize(i, j, r.parameters))
		}
	}
	return s
}

// scopes are all parameters, the layers and the kinds.
func (r *ComponentReport) scopes() []scope {
	return append(append([]scope{everything}, layers(r.parameters)...), scopes("kind", r.parameters, Kind)...)
}

// table has a row for every pair in every scope.
func (r *ComponentReport) table(scopes []scope) *table.Table {
	t := table.New("scope", "name", "first", "second", "cosine", "low", "high", "norm_first", "norm_second")
	for _, s := range scopes {
		for i, a := range r.Names {
			for j := i + 1; j < len(r.Names); j++ {
				band, banded := r.bands[[2]int{i, j}]
				banded = banded && s.kind == "global"
				t.Add(s.kind, s.name, a, r.Names[j], null(r.gram.cosine(i, j, s)), null(band.Low, banded),
					null(band.High, banded), r.gram.norm(i, s), r.gram.norm(j, s))
			}
		}
	}
	return t
}

// WriteCSV writes every pair in every scope, single parameters too if asked. What does not exist is empty.
func (r *ComponentReport) WriteCSV(w io.Writer, parameters bool) error {
	list := r.scopes()
	if parameters {
		list = append(list, scopes("parameter", r.parameters, func(name string) string { return name })...)
	}
	return r.table(list).WriteCSV(w)
}

// Console is the report as a table for people: cosines with their bands.
func (r *ComponentReport) Console() string {
	title := "gradients of the reward's components: norms, and cosines"
	if r.bands != nil {
		title += " [where unrelated rewards would put them]"
	}
	t := table.New(append([]string{"gradient", "norm"}, r.Names[1:]...)...)
	for i, name := range r.Names {
		row := []any{name, r.gram.norm(i, everything)}
		for j := 1; j < len(r.Names); j++ {
			c, ok := r.gram.cosine(i, j, everything)
			text := fmt.Sprintf("%+.3f", c)
			if band, banded := r.bands[[2]int{i, j}]; banded {
				text += fmt.Sprintf(" [%+.2f, %+.2f]", band.Low, band.High)
			}
			switch {
			case j <= i:
				row = append(row, "")
			case !ok:
				row = append(row, nil)
			default:
				row = append(row, text)
			}
		}
		t.Add(row...)
	}
	return title + "\n" + t.Text(table.UnknownWidth)
}
