package plot

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"gyre/orchestrate/metrics"
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

// bucket is one reward-spread bucket of an analysed step.
type bucket struct {
	name    string // bucket_1 …, all
	label   string // Q1 …, all
	values  map[string]float64
	spreads []float64 // of its groups; nil when they were not logged, or do not have the logged mean
}

// get returns a metric by its name after the bucket's; ok is false when it was not computed or is not finite.
func (b bucket) get(name string) (v float64, ok bool) {
	v, ok = b.values[name]
	return v, ok && !math.IsNaN(v) && !math.IsInf(v, 0)
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
			b = &bucket{name: name, label: name, values: map[string]float64{}}
			if name != "all" {
				b.label = "Q" + strconv.Itoa(number)
			}
			found[number] = b
		}
		switch v := value.(type) {
		case float64:
			b.values[metric] = v
		case metrics.Table:
			if metric == "group_rv_table" {
				b.spreads = column(v, "reward_std")
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
			out[i].spreads = nil
		}
	}
	return out
}

// agrees tells whether the table's mean is the logged one, to RAGEN's tolerance.
func agrees(b bucket) bool {
	if mean, ok := b.get("reward_std_mean"); ok && len(b.spreads) > 0 {
		sum := 0.0
		for _, s := range b.spreads {
			sum += s
		}
		return math.Abs(sum/float64(len(b.spreads))-mean) <= 1e-3
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
