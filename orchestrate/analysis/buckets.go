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

// Quantile sorts the groups by spread and cuts them into n buckets of equal size, the last taking the remainder; with fewer groups
// than buckets there is one bucket per group. Ties keep the order of group ids.
func Quantile(groups []Group, n int) []Bucket {
	sorted := append([]Group(nil), groups...)
	sort.SliceStable(sorted, func(i, j int) bool {
		if sorted[i].Spread != sorted[j].Spread {
			return sorted[i].Spread < sorted[j].Spread
		}
		return sorted[i].ID < sorted[j].ID
	})
	n = min(n, len(sorted))
	buckets := make([]Bucket, 0, n)
	for i := range n {
		size := len(sorted) / n
		begin, end := i*size, (i+1)*size
		if i == n-1 {
			end = len(sorted)
		}
		buckets = append(buckets, Bucket{Name: "bucket_" + strconv.Itoa(i+1), Groups: sorted[begin:end]})
	}
	return buckets
}

// FixedRV puts a group of spread s into bucket_k with s in [k-1, k) for k = 1…5 and into bucket_6 from 5 upwards. Empty buckets
// are left out.
func FixedRV(groups []Group) []Bucket {
	const last = 6
	byIndex := make([][]Group, last)
	for _, g := range groups {
		k := min(int(math.Floor(math.Max(g.Spread, 0))), last-1)
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

// Split buckets the groups by the configured mode. Groups whose spread is not a number (a single member, or a broken reward) cannot be
// ranked: they are an error that names them.
func Split(groups []Group, mode string, n int) ([]Bucket, error) {
	for _, g := range groups {
		if math.IsNaN(g.Spread) || math.IsInf(g.Spread, 0) {
			return nil, fmt.Errorf("group %d has reward spread %v: buckets need at least two members with finite scores in every group", g.ID, g.Spread)
		}
	}
	switch mode {
	case "quantile":
		return Quantile(groups, n), nil
	case "fixed_rv":
		return FixedRV(groups), nil
	}
	return nil, fmt.Errorf("unknown bucket mode %q: expected quantile or fixed_rv", mode)
}
