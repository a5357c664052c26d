package components

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"gyre/internal/statistics"
	"gyre/orchestrate/loop/analysis"
	"gyre/orchestrate/run/metrics"
)

// Report is what the gradients are like. A number that does not exist (the cosine with a gradient of no length) is null wherever the
// report goes.
type Report struct {
	Names   []string // the parts, entropy and KL where the loss has them, the total
	Parts   int      // so many of them are parts of the reward
	Buckets []Bucket
	Bytes   int64

	parameters []parameter
	grams      grams
	bands      []Band // by pair; zero where there is none
	// How well the parts add up to the total: |Σ w_k g_k - g_total| / |g_total|, where they should (linear), and the cosine of Σ g_k with it.
	linear              bool
	sumError, sumCosine float64
	hasError, hasCosine bool
}

// Bucket is the same of a reward-spread bucket, without bands.
type Bucket struct {
	Name  string
	grams grams
}

type parameter struct {
	name string
	size int64
}

// grams are inner products by pair and parameter.
type grams [][]float64

// pair is the place of (i, j), i <= j, in the upper triangle of n rows.
func pair(i, j, n int) int { return i*n - i*(i-1)/2 + j - i }

// total is the inner product over all parameters.
func (g grams) total(i, j, n int) float64 { return g.over(i, j, n, func(int) bool { return true }) }

// over adds up the chosen parameters: inner products of parts of a vector add up to that of the vector.
func (g grams) over(i, j, n int, chosen func(parameter int) bool) float64 {
	sum := 0.0
	for p, v := range g[pair(min(i, j), max(i, j), n)] {
		if chosen(p) {
			sum += v
		}
	}
	return sum
}

// check compares the parts' sum with the total. The squares come from inner products in float64 of float32 sums: a sum that holds
// exactly shows as 1e-7 or so.
func (r *Report) check(a Advantages) {
	n, last := len(r.Names), len(r.Names)-1
	sum := func(weight func(part int) float64) (square, with float64) {
		for i := range r.Parts {
			for j := range r.Parts {
				square += weight(i) * weight(j) * r.grams.total(i, j, n)
			}
			with += weight(i) * r.grams.total(i, last, n)
		}
		return square, with
	}
	total := r.grams.total(last, last, n)
	square, with := sum(func(int) float64 { return 1 })
	r.sumCosine, r.hasCosine = statistics.Cosine(with, square, total)
	r.linear = a.Linear
	square, with = sum(func(part int) float64 { return a.Weights[part] })
	if r.hasError = total > 0; r.hasError {
		r.sumError = math.Sqrt(max(square-2*with+total, 0) / total)
	}
}

// Values are the numbers of the report under the names that metrics have: grad_components/norm/NAME, /cosine/A/B with /low and /high, and
// tables by layer and kind of parameter.
func (r *Report) Values() map[string]any {
	out := map[string]any{
		"grad_components/memory_mib":       float64(r.Bytes) / (1 << 20),
		"grad_components/check/sum_cosine": null(r.sumCosine, r.hasCosine),
	}
	if r.linear {
		out["grad_components/check/sum_error"] = null(r.sumError, r.hasError)
	}
	r.numbers(out, "grad_components/", r.grams)
	for i, a := range r.Names {
		for j := i + 1; j < len(r.Names); j++ {
			if low, high, ok := r.band(i, j); ok {
				key := "grad_components/cosine/" + a + "/" + r.Names[j]
				out[key+"/low"], out[key+"/high"] = low, high
			}
		}
	}
	for _, b := range r.Buckets {
		r.numbers(out, "grad_components/"+b.Name+"/", b.grams)
	}
	out["grad_components/table"] = r.table(false)
	return out
}

func null(v float64, exists bool) any {
	if !exists {
		return nil
	}
	return v
}

func (r *Report) band(i, j int) (low, high float64, ok bool) {
	if r.bands == nil {
		return 0, 0, false
	}
	b := r.bands[pair(i, j, len(r.Names))]
	return b.Low, b.High, b.Low < b.High
}

// numbers are norms and cosines over all parameters, and cosines as means over parameters by their size (the seed's other definition).
func (r *Report) numbers(out map[string]any, prefix string, g grams) {
	n := len(r.Names)
	for i, a := range r.Names {
		square := g.total(i, i, n)
		out[prefix+"norm/"+a] = math.Sqrt(square)
		for j := i + 1; j < n; j++ {
			c, ok := statistics.Cosine(g.total(i, j, n), square, g.total(j, j, n))
			out[prefix+"cosine/"+a+"/"+r.Names[j]] = null(c, ok)
			c, ok = r.bySize(g, i, j)
			out[prefix+"cosine_by_size/"+a+"/"+r.Names[j]] = null(c, ok)
		}
	}
}

// bySize is the mean of the parameters' cosines, weighted by their size; of those parameters that have one.
func (r *Report) bySize(g grams, i, j int) (float64, bool) {
	n := len(r.Names)
	sum, size := 0.0, 0.0
	for p, x := range r.parameters {
		if c, ok := statistics.Cosine(g[pair(i, j, n)][p], g[pair(i, i, n)][p], g[pair(j, j, n)][p]); ok {
			sum += c * float64(x.size)
			size += float64(x.size)
		}
	}
	return sum / max(size, 1), size > 0
}

// scope is a set of parameters.
type scope struct {
	kind, name string // global, layer, kind or parameter
	holds      func(parameter int) bool
}

// scopes are all parameters, the layers, the kinds, and with each also every parameter.
func (r *Report) scopes(each bool) []scope {
	out := []scope{{"global", "all", func(int) bool { return true }}}
	for _, by := range []struct {
		kind string
		of   func(string) string
	}{{"layer", analysis.Layer}, {"kind", Kind}} {
		var seen []string
		for _, p := range r.parameters {
			if name := by.of(p.name); !slices.Contains(seen, name) {
				seen = append(seen, name)
				out = append(out, scope{by.kind, name, func(p int) bool { return by.of(r.parameters[p].name) == name }})
			}
		}
	}
	if each {
		for own, p := range r.parameters {
			out = append(out, scope{"parameter", p.name, func(p int) bool { return p == own }})
		}
	}
	return out
}

// table has a row for every pair in every scope.
func (r *Report) table(each bool) metrics.Table {
	t := metrics.Table{Columns: []string{"scope", "name", "first", "second", "cosine", "low", "high", "norm_first", "norm_second"}}
	n := len(r.Names)
	for _, s := range r.scopes(each) {
		for i, a := range r.Names {
			for j := i + 1; j < n; j++ {
				one, other := r.grams.over(i, i, n, s.holds), r.grams.over(j, j, n, s.holds)
				c, ok := statistics.Cosine(r.grams.over(i, j, n, s.holds), one, other)
				low, high, banded := 0.0, 0.0, false
				if s.kind == "global" {
					low, high, banded = r.band(i, j)
				}
				t.Rows = append(t.Rows, []any{s.kind, s.name, a, r.Names[j], null(c, ok), null(low, banded), null(high, banded), math.Sqrt(one), math.Sqrt(other)})
			}
		}
	}
	return t
}

// Kind is what a parameter is for.
func Kind(parameter string) string {
	for _, k := range []struct{ mark, kind string }{
		{"norm", "norm"}, {"self_attn", "attention"}, {"mlp", "mlp"}, {"embed_tokens", "embedding"}, {"lm_head", "head"},
	} {
		if strings.Contains(parameter, k.mark) {
			return k.kind
		}
	}
	return "other"
}

// WriteCSV writes every pair in every scope, single parameters too if asked. What does not exist is empty.
func (r *Report) WriteCSV(w io.Writer, parameters bool) error {
	t := r.table(parameters)
	rows := [][]string{t.Columns}
	for _, row := range t.Rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			switch v := cell.(type) {
			case float64:
				cells[i] = strconv.FormatFloat(v, 'g', -1, 64)
			case string:
				cells[i] = v
			}
		}
		rows = append(rows, cells)
	}
	return csv.NewWriter(w).WriteAll(rows)
}

// Console is the report as a table for people: cosines with their bands.
func (r *Report) Console() string {
	var b strings.Builder
	b.WriteString("gradients of the reward's parts: norms, and cosines")
	if r.bands != nil {
		b.WriteString(" [where unrelated rewards would put them]")
	}
	b.WriteString("\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\t|g|\t")
	for _, name := range r.Names[1:] {
		fmt.Fprintf(w, "%s\t", name)
	}
	fmt.Fprintln(w)
	n := len(r.Names)
	for i, name := range r.Names {
		square := r.grams.total(i, i, n)
		fmt.Fprintf(w, "%s\t%.4g\t", name, math.Sqrt(square))
		for j := 1; j < n; j++ {
			c, ok := statistics.Cosine(r.grams.total(i, j, n), square, r.grams.total(j, j, n))
			switch low, high, banded := r.band(min(i, j), max(i, j)); {
			case j <= i:
				fmt.Fprint(w, "\t")
			case !ok:
				fmt.Fprint(w, "-\t")
			case banded:
				fmt.Fprintf(w, "%+.3f [%+.2f, %+.2f]\t", c, low, high)
			default:
				fmt.Fprintf(w, "%+.3f\t", c)
			}
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	return b.String()
}
