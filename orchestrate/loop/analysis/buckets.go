package analysis

import (
	"fmt"
	"math"
	"sort"
	"strconv"
)

// Group is one group of episodes as the bucketing sees it.
type Group struct {
	ID      int
	Spread  float64 // unbiased standard deviation of the members' scores
	Samples []int   // indices of its episodes in the batch
}

// Bucket is a set of groups of similar spread.
type Bucket struct {
	Name   string // bucket_1 (lowest spread) … bucket_N
	Groups []Group
}

// Samples lists the bucket's episodes in batch order.
func (b Bucket) Samples() []int {
	var out []int
	for _, g := range b.Groups {
		out = append(out, g.Samples...)
	}
	sort.Ints(out)
	return out
}

// Spread is the mean of the groups' spreads.
func (b Bucket) Spread() float64 {
	mean := 0.0
	for _, g := range b.Groups {
		mean += g.Spread / float64(len(b.Groups))
	}
	return mean
}

// Quantile sorts the groups by spread and cuts them into n buckets, as equal in size as can be: they differ by one group at most.
// With paper the last takes the whole remainder, as RAGEN's does. With fewer groups than buckets there is one bucket per group. Ties keep
// the order of group ids.
func Quantile(groups []Group, n int, paper bool) []Bucket {
	sorted := append([]Group(nil), groups...)
	sort.SliceStable(sorted, func(i, j int) bool {
		if sorted[i].Spread != sorted[j].Spread {
			return sorted[i].Spread < sorted[j].Spread
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

// atEdge is how far below an edge a spread still counts as on it: what rounding may have taken from it.
const atEdge = 1e-9

// FixedRV puts a group of spread s into bucket_k with s in [k-1, k) for k = 1…5 and into bucket_6 from 5 upwards. Empty buckets
// are left out.
func FixedRV(groups []Group) []Bucket {
	const last = 6
	byIndex := make([][]Group, last)
	for _, g := range groups {
		k := int(min(g.Spread+atEdge, last-1))
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

// Split buckets the groups by the configured mode; paper asks for RAGEN's remainder. Groups whose spread is not a number (a single member, or a broken reward) cannot be
// ranked: they are an error that names them.
func Split(groups []Group, mode string, n int, paper bool) ([]Bucket, error) {
	for _, g := range groups {
		if math.IsNaN(g.Spread) || math.IsInf(g.Spread, 0) {
			return nil, fmt.Errorf("group %d has reward spread %v: buckets need at least two members with finite scores in every group", g.ID, g.Spread)
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
