package dataset

import (
	"math/rand/v2"
	"slices"
)

// Permutation is a fixed order of n rows: the same for a seed on every machine.
func Permutation(n int, seed int64) []int {
	return rand.New(rand.NewPCG(uint64(seed), 0x9e3779b97f4a7c15)).Perm(n)
}

// Split draws validation rows. Rows with the same problem stay on the same side; both sides are in the file's order.
func Split(t *Table, validation int, seed int64) (train, held []int) {
	groups := map[string][]int{}
	var order []string
	for i, c := range t.Rows {
		key := folded(problemOf(c))
		if len(groups[key]) == 0 {
			order = append(order, key)
		}
		groups[key] = append(groups[key], i)
	}
	for _, k := range Permutation(len(order), seed) {
		group := groups[order[k]]
		if len(held)+len(group) <= validation {
			held = append(held, group...)
		} else {
			train = append(train, group...)
		}
	}
	slices.Sort(train)
	slices.Sort(held)
	return train, held
}
