package gradients

import (
	"fmt"
	"math"
	"sort"
	"strconv"
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
	sort.Ints(out)
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

// Groups puts the rows of a batch into their groups, which have the standard deviations that are given by row.
func Groups(ids []int, std []float64) []Group {
	var out []Group
	at := map[int]int{}
	for row, id := range ids {
		if _, known := at[id]; !known {
			at[id] = len(out)
			out = append(out, Group{ID: id, Std: std[row]})
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
	sorted := append([]Group(nil), groups...)
	sort.SliceStable(sorted, func(i, j int) bool {
		if sorted[i].Std != sorted[j].Std {
			return sorted[i].Std < sorted[j].Std
		}
		return sorted[i].ID < sorted[j].ID
	})
	n = min(n, len(sorted))
	edge := func(i int) int {
		if paper && i < n {
			return i * (len(sorted) / n)
		}
		return i * len(sorted) / n
	}
	buckets := make([]Bucket, 0, n)
	for i := range n {
		buckets = append(buckets, Bucket{Name: "bucket_" + strconv.Itoa(i+1), Groups: sorted[edge(i):edge(i+1)]})
	}
	return buckets
}

// atEdge is how far below an edge a standard deviation still counts as on it: what rounding may have taken from it.
const atEdge = 1e-9

// FixedRV puts a group of standard deviation s into bucket_k with s in [k-1, k) for k = 1…5 and into bucket_6 from 5
// upwards. Empty buckets are left out.
func FixedRV(groups []Group) []Bucket {
	const last = 6
	byIndex := make([][]Group, last)
	for _, g := range groups {
		k := int(min(g.Std+atEdge, last-1))
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
		if math.IsNaN(g.Std) || math.IsInf(g.Std, 0) {
			return nil, fmt.Errorf("group %d has the reward standard deviation %v: buckets need at least two members "+
				"with finite scores in every group", g.ID, g.Std)
		}
	}
	switch mode {
	case "quantile":
		return Quantile(groups, n, paper), nil
	case "fixed_rv":
		return FixedRV(groups), nil
	}
	return nil, fmt.Errorf("unknown bucket mode %q: expected quantile or fixed_rv", mode)
}
