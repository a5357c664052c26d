package plot

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gyre/internal/statistics"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
)

// Metric prefixes of the analysis after and before the rollout filter.
const (
	postFilter = "grad_norm"
	preFilter  = "grad_norm_prefilter"
)

func prefixOf(prefilter bool) string {
	if prefilter {
		return preFilter
	}
	return postFilter
}

// AnalysedSteps lists the steps whose gradients were analysed, after the rollout filter or before it: those with a
// bucket metric that is not zero.
func AnalysedSteps(r *rundir.Run, prefilter bool) (steps []int) {
	for _, record := range r.Records {
		if isAnalysed(record, prefixOf(prefilter)) {
			steps = append(steps, record.Step)
		}
	}
	return steps
}

func isAnalysed(record metrics.Record, prefix string) bool {
	for key, value := range record.Values {
		if v, ok := value.(float64); ok && v != 0 && strings.HasPrefix(key, prefix+"/bucket_") {
			return true
		}
	}
	return false
}

// analysis is one analysed step.
type analysis struct {
	name    string // among others: step 5, centred returns/before
	record  metrics.Record
	profile string   // the procedure of the measurement; "" where it was not recorded (other trainers)
	whole   []bucket // with "all" at the end, where it was logged
	buckets []bucket // without
}

func newAnalysis(name string, record metrics.Record, prefix string) analysis {
	a := analysis{name: name, record: record, whole: bucketsOf(record, prefix)}
	a.profile, _ = record.Values["grad_analysis/profile"].(string)
	a.buckets = slices.DeleteFunc(slices.Clone(a.whole), func(b bucket) bool { return b.name == "all" })
	return a
}

// describe names the analysis's profile for people.
func (a analysis) describe() string {
	if a.profile == "" {
		return "profile not recorded"
	}
	return a.profile + " profile"
}

// caveat says how to read the norms of figures.
func (a analysis) caveat() string {
	if a.profile == "exact" {
		return "per group: a measured norm holds noise, which shrinks as 1/√groups: compare the estimates without noise"
	}
	return "norms as this procedure gives them: without intervals, and dependent on a bucket's size"
}

// intervals explains the estimates without noise.
func (a analysis) intervals() string {
	if confidence, known := a.record.Float("grad_analysis/confidence"); known {
		return fmt.Sprintf("without noise, %g%% interval", 100*confidence)
	}
	return "without noise, with its interval"
}

// comparable refuses analyses that were measured by different procedures.
func comparable(list []analysis) error {
	for _, a := range list {
		if first := list[0]; a.profile != first.profile {
			return fmt.Errorf("the analyses cannot be compared: %s has the %s, %s the %s, and their norms mean "+
				"different things", first.name, first.describe(), a.name, a.describe())
		}
	}
	return nil
}

// bucket is one bucket of an analysed step: groups of similar reward standard deviation.
type bucket struct {
	name, label string // bucket_1, Q1; all, all
	values      map[string]float64
	groups      metrics.Table // those of the bucket with their reward standard deviations, where they were logged
	exact       bool          // norms are those of sums over groups (exact profile)
}

// bucketsOf are the record's buckets in the order of their numbers, and last "all" where it was logged.
func bucketsOf(record metrics.Record, prefix string) []bucket {
	var found []bucket
	for key, value := range record.Values {
		rest, ok := strings.CutPrefix(key, prefix+"/")
		name, metric, ok2 := strings.Cut(rest, "/")
		label := strings.Replace(name, "bucket_", "Q", 1)
		if !ok || !ok2 || label == name && name != "all" {
			continue
		}
		i := slices.IndexFunc(found, func(b bucket) bool { return b.name == name })
		if i < 0 {
			i, found = len(found), append(found, bucket{name: name, label: label, values: map[string]float64{},
				exact: record.Values["grad_analysis/profile"] == "exact"})
		}
		switch v := value.(type) {
		case float64:
			found[i].values[metric] = v
		case metrics.Table:
			if metric == "group_rv_table" {
				found[i].groups = v
			}
		}
	}
	slices.SortFunc(found, func(a, b bucket) int { return cmp.Compare(a.number(), b.number()) })
	return found
}

// number of a bucket; "all" comes after all others.
func (b bucket) number() int {
	if n, err := strconv.Atoi(strings.TrimPrefix(b.label, "Q")); err == nil {
		return n
	}
	return math.MaxInt
}

// value is a metric by its name after the bucket's; NaN when it was not computed or is not finite.
func (b bucket) value(name string) float64 {
	if v, ok := b.values[name]; ok && statistics.Finite(v) {
		return v
	}
	return math.NaN()
}

// stds are the reward standard deviations of the bucket's groups; none where they were not logged, or their mean is not
// the logged one to RAGEN's tolerance.
func (b bucket) stds() (out []float64) {
	for _, row := range b.groups.Rows {
		if v, ok := cell(b.groups, row, "reward_std").(float64); ok && statistics.Finite(v) {
			out = append(out, v)
		}
	}
	if math.Abs(statistics.Mean(out)-b.value("reward_std_mean")) > 1e-3 {
		return nil
	}
	return out
}

// cell is a row's value in a column; nil without one.
func cell(t metrics.Table, row []any, column string) any {
	if i := slices.Index(t.Columns, column); i >= 0 && i < len(row) {
		return row[i]
	}
	return nil
}

// computed tells whether any of the buckets has the metric.
func computed(list []bucket, name string) bool {
	return slices.ContainsFunc(list, func(b bucket) bool { return !math.IsNaN(b.value(name)) })
}

// strength is a component's gradient norm in a form that can be compared between buckets. What is not known is NaN.
type strength struct {
	measured float64 // the bucket's norm per group, noise included
	// signal is the norm of a group's expected gradient: the root of the unbiased estimate of its square, 0 where that
	// is negative.
	signal, low, high float64
	why               string // there is no signal or interval
}

// strength of a component. In the exact profile it is per group; other profiles' norms are means over mini-batches, and
// stay as they are.
func (b bucket) strength(component string) strength {
	n := b.value("group_rv_count")
	s := strength{b.value(component), math.NaN(), math.NaN(), math.NaN(), ""}
	if math.IsNaN(s.measured) {
		return s
	}
	if !b.exact || !(n > 0) {
		s.why = "no estimate in this profile"
		return s
	}
	s.measured /= n
	s.signal = b.value("signal_per_group/" + component)
	s.low, s.high = b.value("signal_per_group_low/"+component), b.value("signal_per_group_high/"+component)
	switch {
	case statistics.Finite(s.signal + s.low + s.high):
	case n == 1:
		s.why = "1 group: no estimate"
	case n == 2:
		s.why = "2 groups: no interval"
	default:
		s.why = "statistics off"
	}
	return s
}

// together is the norm of the sum of two components' gradients; where the angle between them is not known the norms are
// added, and exact is false.
func (b bucket) together(first, second string) (norm float64, exact bool) {
	x, y := b.value(first), b.value(second)
	for _, pair := range []string{second + "_" + first, first + "_" + second} {
		if cosine := b.value("cosine/" + pair); !math.IsNaN(cosine) {
			return math.Sqrt(math.Max(x*x+y*y+2*cosine*x*y, 0)), true
		}
	}
	return x + y, b.exact && (x == 0 || y == 0)
}
