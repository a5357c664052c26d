package train

import (
	"math"
	"testing"
)

// weighed are the weights of sequences with these masks.
func weighed(aggregation string, masks [][]bool) [][]float32 {
	b := &Batch{}
	for _, mask := range masks {
		b.Sequences = append(b.Sequences, Sequence{Mask: mask})
	}
	b.Weigh(aggregation, 4)
	return b.Weights
}

func TestLossWeights(t *testing.T) {
	x := [][]float64{{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 9, 9, 9}}
	masks := [][]bool{bits("1100"), bits("1110"), bits("0000")}
	for mode, want := range map[string]float64{
		"token-mean": 4.2, "token-sum": 21, "seq-mean-token-sum": 10.5, "seq-mean-token-mean": 3.75,
		"seq-mean-token-sum-norm": 5.25,
	} {
		found := weighed(mode, masks)
		got := 0.0
		for i := range x {
			for j := range x[i] {
				got += float64(found[i][j]) * x[i][j]
			}
		}
		if math.Abs(got-want) > 1e-6 {
			t.Errorf("%s = %v, want %v", mode, got, want)
		}
	}
	empty := weighed("token-mean", masks[2:])
	for _, w := range empty[0] {
		if w != 0 {
			t.Errorf("weights of nothing: %v", empty)
		}
	}
}

func bits(mask string) []bool {
	out := make([]bool, len(mask))
	for i, c := range mask {
		out[i] = c == '1'
	}
	return out
}

// A batch that is taken from another shares its columns.
func TestTake(t *testing.T) {
	b := &Batch{Sequences: make([]Sequence, 4), Old: [][]float32{{0}, {1}, {2}, {3}}}
	part := b.Take([]int{3, 1, 0}).Take([]int{2, 0})
	if part.Len() != 2 || part.Old[0][0] != 0 || part.Old[1][0] != 3 || part.Values != nil {
		t.Errorf("taken: %+v", part)
	}
	part.Old[0][0] = 7
	if b.Old[0][0] != 7 {
		t.Error("the column was copied")
	}
}
