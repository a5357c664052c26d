package plot

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gyre/internal/figure"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
)

// Metric prefixes of the analysis after and before the rollout filter.
const (
	postFilter = "grad_norm"
	preFilter  = "grad_norm_prefilter"
)

// AnalysedSteps lists the steps whose gradients were analysed, after the rollout filter or before it: those with a
// bucket metric that is not zero.
func AnalysedSteps(r *rundir.Run, prefilter bool) []int {
	prefix := postFilter
	if prefilter {
		prefix = preFilter
	}
	var out []int
	for _, record := range r.Records {
		if isAnalysed(record, prefix) {
			out = append(out, record.Step)
		}
	}
	return out
}

// isAnalysed tells whether the record has a bucket metric that is not zero.
func isAnalysed(record metrics.Record, prefix string) bool {
	for key, value := range record.Values {
		if v, ok := value.(float64); ok && v != 0 && strings.HasPrefix(key, prefix+"/bucket_") {
			return true
		}
	}
	return false
}

// profileOf is the procedure by which the record's gradients were measured; "" where that was not recorded (other
// trainers).
func profileOf(record metrics.Record) string {
	profile, _ := record.Values["grad_analysis/profile"].(string)
	return profile
}

// describeProfile names a profile for people.
func describeProfile(profile string) string {
	if profile == "" {
		return "profile not recorded"
	}
	return profile + " profile"
}

// bucket is one bucket of an analysed step: groups of similar reward standard deviation.
type bucket struct {
	name   string // bucket_1 …, all
	label  string // Q1 …, all
	values map[string]float64
	// reward standard deviations of its groups; nil when they were not logged, or do not have the logged mean
	stds  []float64
	table metrics.Table
	exact bool // norms are those of sums over groups (exact profile)
}

// get returns a metric by its name after the bucket's; ok is false when it was not computed or is not finite.
func (b bucket) get(name string) (v float64, ok bool) {
	v, ok = b.values[name]
	return v, ok && !math.IsNaN(v) && !math.IsInf(v, 0)
}

// groups is the number of groups in the bucket; 0 where it was not logged.
func (b bucket) groups() float64 {
	n, _ := b.get("group_rv_count")
	return n
}

// axis has the buckets as places, with a line each for the range of their groups' reward standard deviations and the
// number of groups: the buckets of two analyses have the same names and other ranges.
func axis(list []bucket) figure.Axis {
	a := figure.Axis{Names: []string{}}
	rows := []struct{ head, name string }{{"std from", "reward_std_min"}, {"to", "reward_std_max"},
		{"mean", "reward_std_mean"}, {"groups", "group_rv_count"}}
	for _, b := range list {
		a.Names = append(a.Names, b.label)
	}
	for _, row := range rows {
		if !computed(list, row.name) || row.name == "reward_std_mean" && computed(list, "reward_std_min") {
			continue
		}
		line := figure.Row{Head: row.head}
		for _, b := range list {
			text := ""
			if v, ok := b.get(row.name); ok {
				if text = figure.Short(v, 2); row.name == "group_rv_count" {
					text = strconv.Itoa(int(v))
				}
			}
			line.Cells = append(line.Cells, text)
		}
		a.Rows = append(a.Rows, line)
	}
	return a
}

// strength is a component's gradient norm in a form that can be compared between buckets.
type strength struct {
	measured float64 // the bucket's norm per group, noise included
	// signal is the norm of a group's expected gradient: the root of the unbiased estimate of its square, 0 where that
	// is negative.
	signal, low, high       float64
	hasSignal, hasIntervals bool
	why                     string // there is no signal or interval
}

// strength of a component; ok is false where it was not computed. In the exact profile it is per group; other profiles'
// norms are means over mini-batches, and stay as they are.
func (b bucket) strength(component string) (s strength, ok bool) {
	norm, ok := b.get(component)
	if !ok {
		return strength{}, false
	}
	n := b.groups()
	if !b.exact || n == 0 {
		return strength{measured: norm, why: "no estimate in this profile"}, true
	}
	s.measured = norm / n
	var hasLow, hasHigh bool
	s.signal, s.hasSignal = b.get("signal_per_group/" + component)
	s.low, hasLow = b.get("signal_per_group_low/" + component)
	s.high, hasHigh = b.get("signal_per_group_high/" + component)
	s.hasIntervals = s.hasSignal && hasLow && hasHigh
	switch {
	case s.hasIntervals:
	case n == 1:
		s.why = "1 group: no estimate"
	case n == 2:
		s.why = "2 groups: no interval"
	default:
		s.why = "statistics off"
	}
	return s, true
}

// together is the norm of the sum of two components' gradients; where the angle between them is not known the norms are
// added, and exact is false.
func (b bucket) together(first, second string) (norm float64, exact, ok bool) {
	x, ok1 := b.get(first)
	y, ok2 := b.get(second)
	if !ok1 || !ok2 {
		return 0, false, false
	}
	cosine, known := b.get("cosine/" + second + "_" + first)
	if !known {
		cosine, known = b.get("cosine/" + first + "_" + second)
	}
	if known {
		return math.Sqrt(math.Max(x*x+y*y+2*cosine*x*y, 0)), true, true
	}
	return x + y, b.exact && (x == 0 || y == 0), true
}

// buckets returns the record's buckets in the order of their numbers, and last "all" where it was logged.
func buckets(record metrics.Record, prefix string) []bucket {
	found := map[int]*bucket{}
	for key, value := range record.Values {
		rest, ok := strings.CutPrefix(key, prefix+"/")
		name, metric, ok2 := strings.Cut(rest, "/")
		if !ok || !ok2 {
			continue
		}
		number := math.MaxInt
		if name != "all" {
			n, err := strconv.Atoi(strings.TrimPrefix(name, "bucket_"))
			if err != nil || !strings.HasPrefix(name, "bucket_") {
				continue
			}
			number = n
		}
		b := found[number]
		if b == nil {
			b = &bucket{name: name, label: name, values: map[string]float64{}, exact: profileOf(record) == "exact"}
			if name != "all" {
				b.label = fmt.Sprintf("Q%d", number)
			}
			found[number] = b
		}
		switch v := value.(type) {
		case float64:
			b.values[metric] = v
		case metrics.Table:
			if metric == "group_rv_table" {
				b.stds, b.table = column(v, "reward_std"), v
			}
		}
	}
	numbers := make([]int, 0, len(found))
	for n := range found {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	out := make([]bucket, len(numbers))
	for i, n := range numbers {
		out[i] = *found[n]
		if !agrees(out[i]) {
			out[i].stds = nil
		}
	}
	return out
}

// agrees tells whether the table's mean is the logged one, to RAGEN's tolerance.
func agrees(b bucket) bool {
	if mean, ok := b.get("reward_std_mean"); ok && len(b.stds) > 0 {
		sum := 0.0
		for _, s := range b.stds {
			sum += s
		}
		return math.Abs(sum/float64(len(b.stds))-mean) <= 1e-3
	}
	return true
}

// column returns a table's finite numbers in a column.
func column(t metrics.Table, name string) []float64 {
	i := slices.Index(t.Columns, name)
	var out []float64
	for _, row := range t.Rows {
		if i < 0 || i >= len(row) {
			continue
		}
		if v, ok := row[i].(float64); ok && !math.IsNaN(v) && !math.IsInf(v, 0) {
			out = append(out, v)
		}
	}
	return out
}

// proper are the buckets without "all".
func proper(list []bucket) []bucket {
	return slices.DeleteFunc(slices.Clone(list), func(b bucket) bool { return b.name == "all" })
}

// computed tells whether any of the buckets has the metric.
func computed(list []bucket, name string) bool {
	return slices.ContainsFunc(list, func(b bucket) bool { _, ok := b.get(name); return ok })
}

// Buckets are the names of a record's buckets in their order, and last "all".
func Buckets(record metrics.Record) (names []string) {
	for _, b := range buckets(record, postFilter) {
		names = append(names, b.name)
	}
	return names
}
