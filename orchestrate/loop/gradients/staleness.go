package gradients

import (
	"strconv"

	"gyre/orchestrate/loop/train"
)

// ByStaleness takes a weighed batch apart by how old the weights were that drew its tokens: bucket_k has those of k-1
// training steps, -1 in stale says that nothing was drawn. The batch that is returned has a row for every episode and
// staleness, in which the other tokens have no weight; ratios and means of an episode are still those of the whole, so
// buckets add up to the batch's gradient. A group is in every bucket that has tokens of it.
func ByStaleness(b *train.Batch, stale [][]int, groups []Group) (*train.Batch, []Bucket) {
	var rows []int
	var ages []int
	members := map[int]map[int][]int{} // by staleness and group: rows of the batch that is made
	oldest := 0
	for g, group := range groups {
		for _, row := range group.Rows {
			seen := map[int]bool{}
			for _, age := range stale[row] {
				if age < 0 || seen[age] {
					continue
				}
				seen[age], oldest = true, max(oldest, age)
				if members[age] == nil {
					members[age] = map[int][]int{}
				}
				members[age][g] = append(members[age][g], len(rows))
				rows, ages = append(rows, row), append(ages, age)
			}
		}
	}
	apart := b.Take(rows)
	for i, row := range rows {
		apart.Weights[i] = make([]float32, len(b.Weights[row]))
		for t, weight := range b.Weights[row] {
			if stale[row][t] == ages[i] {
				apart.Weights[i][t] = weight
			}
		}
	}
	var buckets []Bucket
	for age := range oldest + 1 {
		bucket := Bucket{Name: "bucket_" + strconv.Itoa(age+1)}
		for g, group := range groups {
			if own := members[age][g]; len(own) > 0 {
				bucket.Groups = append(bucket.Groups, Group{ID: group.ID, Std: group.Std, Rows: own})
			}
		}
		if len(bucket.Groups) > 0 {
			buckets = append(buckets, bucket)
		}
	}
	return apart, buckets
}

// unweighted counts the sampled tokens of a row that have no weight.
func unweighted(b *train.Batch, row int) (n int) {
	for t, sampled := range b.Sequences[row].Mask {
		if sampled && b.Weights[row][t] == 0 {
			n++
		}
	}
	return n
}

// withoutShared takes out of the inner product of two buckets what groups have in common that are in both: their noise
// is the same episodes'. ok is false where nothing is left, or groups were not compared.
func withoutShared(product float64, x, y *Result, a, b *Term) (rest float64, ok bool, err error) {
	at, shared := map[int]int{}, 0
	for i, g := range x.Groups {
		at[g.ID] = i
	}
	for j, g := range y.Groups {
		i, both := at[g.ID]
		if !both {
			continue
		}
		if i >= len(a.groups) || j >= len(b.groups) {
			return 0, false, nil
		}
		own, err := a.groups[i].dot(b.groups[j])
		if err != nil {
			return 0, false, err
		}
		product, shared = product-own, shared+1
	}
	if shared == 0 {
		return product, true, nil
	}
	pairs := float64(len(x.Groups) * len(y.Groups))
	return product * pairs / (pairs - float64(shared)), shared < int(pairs), nil
}
