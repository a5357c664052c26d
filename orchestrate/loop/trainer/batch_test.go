package trainer

import (
	"math/rand/v2"
	"slices"
	"testing"

	"gyre/orchestrate/loop/episode"
)

func samplesOf(ids ...[]int32) []*Sample {
	var out []*Sample
	for _, x := range ids {
		out = append(out, &Sample{Episode: &episode.Episode{IDs: x, Mask: make([]bool, len(x))}})
	}
	return out
}

// chosen are the samples of micro-batches.
func chosen(micro [][]stretch) [][]int {
	out := make([][]int, len(micro))
	for j, batch := range micro {
		for _, s := range batch {
			out[j] = append(out[j], s.sample)
		}
	}
	return out
}

// An episode of several contexts becomes sequences of their own, which may lie in different micro-batches; columns are cut and put
// together accordingly.
func TestContextsBecomeSequences(t *testing.T) {
	samples := samplesOf([]int32{1, 2, 3, 9, 8, 1, 2, 4}, []int32{1, 2, 3})
	samples[0].Contexts = []int{0, 3, 5}
	for i, s := range samples {
		for j := range s.IDs {
			s.Old = append(s.Old, float32(10*i+j))
			s.Mask = append(s.Mask[:j], j%2 == 1)
		}
	}
	got := microBatches(samples, all(2), 4)
	want := [][]stretch{{{0, 0, 3}, {1, 0, 3}, {0, 5, 8}}, {{0, 3, 5}}} // 3 + 0 + 1 rows; 2
	if !slices.EqualFunc(got, want, slices.Equal[[]stretch]) {
		t.Fatalf("micro-batches %v, want %v", got, want)
	}
	if begun(got[0]) != 2 || begun(got[1]) != 0 {
		t.Errorf("%d and %d episodes begin in the micro-batches, want 2 and 0: progress counts episodes", begun(got[0]), begun(got[1]))
	}
	batch := pack(samples, got[0])
	if !slices.Equal(batch.Offsets, []int64{0, 3, 6, 9}) || !slices.Equal(batch.IDs, []int32{1, 2, 3, 1, 2, 3, 1, 2, 4}) ||
		!slices.Equal(batch.Mask, []uint8{0, 1, 0, 0, 1, 0, 1, 0, 1}) {
		t.Errorf("packed %+v", batch)
	}
	for _, micro := range got {
		column := gather(micro, func(i int) []float32 { return samples[i].Old })
		scatter(samples, micro, column, func(i int) *[]float32 { return &samples[i].Values })
	}
	for i, s := range samples {
		if !slices.Equal(s.Values, s.Old) {
			t.Errorf("sample %d: %v came back as %v", i, s.Old, s.Values)
		}
	}
}

func TestMicroBatchesCountACommonPrefixOnce(t *testing.T) {
	samples := samplesOf(
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
		if got := chosen(microBatches(samples, all(5), budget)); !slices.EqualFunc(got, want, slices.Equal[[]int]) {
			t.Errorf("budget %d: got %v, want %v", budget, got, want)
		}
	}
	if got := chosen(microBatches(samples, []int{3, 1, 0}, 100)); !slices.EqualFunc(got, [][]int{{3, 0, 1}}, slices.Equal[[]int]) {
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
		samples, budget := samplesOf(ids...), 1+r.IntN(30)
		var seen []int
		for _, micro := range microBatches(samples, all(len(samples)), budget) {
			histories := map[string]bool{}
			longest := 0
			for _, s := range micro {
				i := s.sample
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
		if !slices.Equal(seen, all(len(samples))) {
			t.Fatalf("samples %v", seen)
		}
	}
}
