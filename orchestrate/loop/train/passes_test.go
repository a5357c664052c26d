package train

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func batchOf(ids ...[]int32) *Batch {
	b := &Batch{}
	for _, x := range ids {
		b.Sequences = append(b.Sequences, Sequence{IDs: x, Mask: make([]bool, len(x))})
	}
	return b
}

// chosen are the samples of micro-batches.
func chosen(micro [][]segment) [][]int {
	out := make([][]int, len(micro))
	for j, batch := range micro {
		for _, s := range batch {
			out[j] = append(out[j], s.row)
		}
	}
	return out
}

// An episode of several contexts becomes sequences of their own, which may lie in different micro-batches; columns
// are cut and put together accordingly.
func TestContextsBecomeSequences(t *testing.T) {
	b := batchOf([]int32{1, 2, 3, 9, 8, 1, 2, 4}, []int32{1, 2, 3})
	b.Sequences[0].Starts = []int{0, 3, 5}
	b.Old = make([][]float32, 2)
	for i, s := range b.Sequences {
		for j := range s.IDs {
			b.Old[i] = append(b.Old[i], float32(10*i+j))
			s.Mask[j] = j%2 == 1
		}
	}
	got := b.microBatches(All(2), 4)
	want := [][]segment{{{0, 0, 3}, {1, 0, 3}, {0, 5, 8}}, {{0, 3, 5}}} // 3 + 0 + 1 rows; 2
	if !slices.EqualFunc(got, want, slices.Equal[[]segment]) {
		t.Fatalf("micro-batches %v, want %v", got, want)
	}
	if (pass{b, got[0]}).begun() != 2 || (pass{b, got[1]}).begun() != 0 {
		t.Errorf("%d and %d episodes begin in the micro-batches, want 2 and 0: progress counts episodes",
			(pass{b, got[0]}).begun(), (pass{b, got[1]}).begun())
	}
	batch := pass{b, got[0]}.pack()
	if !slices.Equal(batch.Offsets, []int64{0, 3, 6, 9}) || !slices.Equal(batch.IDs,
		[]int32{1, 2, 3, 1, 2, 3, 1, 2, 4}) ||
		!slices.Equal(batch.Mask, []uint8{0, 1, 0, 0, 1, 0, 1, 0, 1}) {
		t.Errorf("packed %+v", batch)
	}
	back := make([][]float32, 2)
	for _, micro := range got {
		p := pass{b, micro}
		p.scatter(p.gather(b.Old), back)
	}
	for i := range back {
		if !slices.Equal(back[i], b.Old[i]) {
			t.Errorf("row %d: %v came back as %v", i, b.Old[i], back[i])
		}
	}
}

func TestMicroBatchesCountACommonPrefixOnce(t *testing.T) {
	samples := batchOf(
		[]int32{1, 2, 3, 4, 5}, // 0: the group of 1 2 3
		[]int32{7, 8, 9},       // 1: alone
		[]int32{1, 2, 3, 6},    // 2
		[]int32{1, 2, 3, 4, 5}, // 3: the same as 0
		[]int32{5, 5, 5, 5, 5, 5, 5, 5, 5},
	)
	for budget, want := range map[int][][]int{
		9: {{0, 3, 2}, {4}, {1}}, // 5 + 0 + 1 rows; 9; 3
		6: {{0, 3, 2}, {4}, {1}},
		5: {{0, 3}, {2}, {4}, {1}},
		1: {{0, 3}, {2}, {4}, {1}}, // a copy takes no row
	} {
		if got := chosen(samples.microBatches(All(5), budget)); !slices.EqualFunc(got, want, slices.Equal[[]int]) {
			t.Errorf("budget %d: got %v, want %v", budget, got, want)
		}
	}
	if got := chosen(samples.microBatches([]int{3, 1, 0}, 100)); !slices.EqualFunc(got, [][]int{{3, 0, 1}},
		slices.Equal[[]int]) {
		t.Errorf("equal samples lost their order: %v", got)
	}
}

// Every sample is in one micro-batch, and none takes more rows than the budget unless it holds one sample only.
func TestMicroBatchesHoldEverySampleOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var ids [][]int32
		for range 30 {
			x := make([]int32, 1+r.IntN(12))
			for i := range x {
				x[i] = int32(r.IntN(2))
			}
			ids = append(ids, x)
		}
		samples, budget := batchOf(ids...), 1+r.IntN(30)
		var seen []int
		for _, micro := range samples.microBatches(All(samples.Len()), budget) {
			histories := map[string]bool{}
			longest := 0
			for _, s := range micro {
				i := s.row
				seen = append(seen, i)
				longest = max(longest, len(ids[i]))
				key := ""
				for _, id := range ids[i] {
					key += string(rune('a' + id))
					histories[key] = true
				}
			}
			if len(histories) > max(budget, longest) {
				t.Errorf("micro-batch %v takes %d rows, more than %d", micro, len(histories), budget)
			}
		}
		slices.Sort(seen)
		if !slices.Equal(seen, All(samples.Len())) {
			t.Fatalf("samples %v", seen)
		}
	}
}
