package budget

import (
	"cmp"
	"container/heap"
)

// claim is a group that may get another episode.
type claim struct {
	group, size int
	noise       float64 // of the group at size 2
}

// gain is how much another episode takes from noise/(size − 1).
func (c claim) gain() float64 { return c.noise / float64(c.size*(c.size-1)) }

// claims have the group first that gains most, of equals the lower.
type claims []claim

func (c claims) Len() int { return len(c) }
func (c claims) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(c[j].gain(), c[i].gain()), c[i].group-c[j].group) < 0
}
func (c claims) Swap(i, j int) { c[i], c[j] = c[j], c[i] }
func (c *claims) Push(x any)   { *c = append(*c, x.(claim)) }
func (c *claims) Pop() any {
	last := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return last
}

// Allocate shares out a total of episodes so that Σ noise/(size − 1) is least, with floor (at least 2) or more in each
// group: Neyman's allocation in whole numbers. Each episode goes where it gains most, which is optimal as the sum is
// separable and convex. It is nil where nothing is noisy: sizes then do not matter.
func Allocate(noise []float64, total, floor int) []int {
	sizes, open, left := make([]int, len(noise)), claims{}, total
	for g, v := range noise {
		sizes[g] = floor
		left -= floor
		if v > 0 {
			open = append(open, claim{g, floor, v})
		}
	}
	if len(open) == 0 || left < 0 {
		return nil
	}
	heap.Init(&open)
	for ; left > 0; left-- {
		open[0].size++
		sizes[open[0].group]++
		heap.Fix(&open, 0)
	}
	return sizes
}
