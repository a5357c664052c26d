package gradients

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"gyre/internal/statistics"
	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
)

// Group is one group of episodes as the bucketing sees it.
type Group struct {
	ID   int
	Std  float64 // unbiased standard deviation of the members' scores
	Rows []int   // of its episodes in the batch
}

// Bucket is a set of groups of similar reward standard deviation.
type Bucket struct {
	Name   string // bucket_1 (lowest standard deviation) … bucket_N
	Groups []Group
}

// Rows lists the bucket's episodes in batch order.
func (b Bucket) Rows() []int {
	var out []int
	for _, g := range b.Groups {
		out = append(out, g.Rows...)
	}
	slices.Sort(out)
	return out
}

// MeanStd is the mean of the groups' standard deviations.
func (b Bucket) MeanStd() float64 {
	mean := 0.0
	for _, g := range b.Groups {
		mean += g.Std / float64(len(b.Groups))
	}
	return mean
}

// Groups puts the rows of a batch into their groups. std, unless nil, are the groups' standard deviations by row.
func Groups(ids []int, std []float64) []Group {
	var out []Group
	at := map[int]int{}
	for row, id := range ids {
		if _, known := at[id]; !known {
			at[id] = len(out)
			out = append(out, Group{ID: id})
			if std != nil {
				out[at[id]].Std = std[row]
			}
		}
		g := &out[at[id]]
		g.Rows = append(g.Rows, row)
	}
	return out
}

// Quantile sorts the groups by standard deviation and cuts them into n buckets, as equal in size as can be: they
// differ by one group at most. With paper the last takes the whole remainder, as RAGEN's does. With fewer groups than
// buckets there is one bucket per group. Ties keep the order of group ids.
func Quantile(groups []Group, n int, paper bool) []Bucket {
	sorted := slices.SortedStableFunc(slices.Values(groups), func(a, b Group) int {
		return cmp.Or(cmp.Compare(a.Std, b.Std), cmp.Compare(a.ID, b.ID))
	})
	n = min(n, len(sorted))
	edge := func(i int) int {
		if paper && i < n {
			return i * (len(sorted) / n)
		}
		return i * len(sorted) / n
	}
	var buckets []Bucket
	for i := range n {
		buckets = append(buckets, Bucket{Name: "bucket_" + strconv.Itoa(i+1), Groups: sorted[edge(i):edge(i+1)]})
	}
	return buckets
}

// FixedRV puts a group of standard deviation s into bucket_k with s in [k-1, k) for k = 1…5 and into bucket_6 from 5
// upwards. Empty buckets are left out. A deviation that rounding may have taken from an edge counts as on it.
func FixedRV(groups []Group) []Bucket {
	const last, rounding = 6, 1e-9
	var byIndex [last][]Group
	for _, g := range groups {
		k := int(min(g.Std+rounding, last-1))
		byIndex[k] = append(byIndex[k], g)
	}
	var buckets []Bucket
	for k, members := range byIndex {
		if len(members) > 0 {
			buckets = append(buckets, Bucket{Name: "bucket_" + strconv.Itoa(k+1), Groups: members})
		}
	}
	return buckets
}

// Split buckets the groups by the configured mode; paper asks for RAGEN's remainder. Groups whose standard deviation
// is not a number (a single member, or a broken reward) cannot be ranked: they are an error that names them.
func Split(groups []Group, mode string, n int, paper bool) ([]Bucket, error) {
	for _, g := range groups {
		if !statistics.Finite(g.Std) {
			return nil, fmt.Errorf("group %d has the reward standard deviation %v: buckets need at least two members "+
				"with finite scores in every group", g.ID, g.Std)
		}
	}
	if mode == "fixed_rv" {
		return FixedRV(groups), nil
	}
	return Quantile(groups, n, paper), nil
}

// MeasureBuckets takes the gradients of the columns for every bucket and for the whole batch.
func MeasureBuckets(ctx context.Context, s Subject, buckets []Bucket, o Options) (*Report, error) {
	m, err := begin(ctx, s)
	if err != nil {
		return nil, err
	}
	defer m.close()
	whole := Bucket{Name: "all"}
	for _, bucket := range buckets {
		whole.Groups = append(whole.Groups, bucket.Groups...)
	}
	report := &Report{Options: o, Terms: s.names(),
		Plan: experiment.PlanBuckets(o.Analysis, entries(m.named), len(s.Columns), len(whole.Groups), len(buckets))}
	m.keep = report.Plan.Keep
	if o.Profile == Exact {
		report.layers = layers(m.named)
	}
	for _, bucket := range append(slices.Clone(buckets), whole) {
		rows := bucket.Rows()
		if o.Profile == Paper {
			rows = rows[:len(rows)-len(rows)%o.PaperRanks]
		}
		if len(rows) > 0 { // RAGEN skips other buckets
			report.Results = append(report.Results, newResult(bucket, s.Batch, rows))
		}
	}
	if len(report.Results) == 0 {
		return nil, fmt.Errorf("%d rows are fewer than %d ranks", s.Batch.Len(), o.PaperRanks)
	}
	for columns := range slices.Chunk(s.Columns, o.AtOnce(len(s.Columns))) {
		some := s
		some.Columns = columns
		if err := m.measure(some, buckets, report); err != nil {
			return nil, err
		}
	}
	if o.Profile == Exact {
		if err := report.compare(); err != nil {
			return nil, err
		}
		if err := report.pulls(); err != nil {
			return nil, err
		}
		report.Proxy = report.All().proxy(o.Confidence)
	}
	report.tabulate()
	return report, nil
}

// measure adds some columns to a report.
func (m *measurement) measure(s Subject, buckets []Bucket, report *Report) error {
	o := report.Options
	if o.Profile == Paper {
		for _, r := range report.Results {
			if err := m.paper(s, r, r.Rows()[:r.Samples], o); err != nil {
				return err
			}
		}
		return nil
	}
	add := func(rows []int, into buffers) ([]float64, error) { return s.take(rows).backward(m.ctx, into) }
	sums, err := m.sums(buckets, s.names(), add)
	if err != nil {
		return err
	}
	for i, x := range sums {
		if err := report.Results[i].add(x, s.names(), report); err != nil {
			return err
		}
	}
	return nil
}

// Profiles of MeasureBuckets.
const (
	Exact = "exact"
	Paper = "paper"
)

// Options are the keys of [analysis], which choose what is measured of buckets and how, and what the paper profile
// repeats of the update: the rows of a mini-batch over all ranks, and how token losses are joined, with the width that
// seq-mean-token-sum-norm divides by.
type Options struct {
	config.Analysis
	Confidence  float64 // of the intervals
	MiniBatch   int
	Aggregation string
	Width       int
	Pulls       bool // what groups do to the task's gradient outlives the measurement
}

// Confidence of the intervals of gradients.
const Confidence = 0.95

// OptionsOf are a configuration's.
func OptionsOf(c *config.Config) Options {
	return Options{Analysis: c.Analysis, Confidence: Confidence, MiniBatch: c.Actor.MiniBatch,
		Aggregation: c.Actor.LossAggregation}
}

// describe says by which procedure the numbers were made.
func (o Options) describe() string {
	if o.Profile == Paper {
		return fmt.Sprintf("paper profile: mean norm of mini-batches of %d, micro-batches of %d, ranks %d",
			o.MiniBatch, o.PaperMicroBatch, o.PaperRanks)
	}
	return fmt.Sprintf("exact profile, %g%% intervals", 100*o.Confidence)
}
