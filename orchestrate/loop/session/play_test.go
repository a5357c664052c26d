package session

import (
	"slices"
	"testing"

	"gyre/orchestrate/loop/episode"
)

// The weights of episodes reach the loss of their batch and of its mini-batches; without any nothing is weighed.
func TestWeightsOfEpisodes(t *testing.T) {
	made := func(weight float64) *episode.Episode {
		return &episode.Episode{IDs: []int32{1, 2, 3}, Mask: []bool{false, true, true}, Weight: weight}
	}
	b := BatchOf([]*episode.Episode{made(0.5), made(0.5), made(2), made(0)}).Take([]int{0, 2, 3})
	if !slices.Equal(b.Counts, []float64{0.5, 2, 1}) {
		t.Fatalf("counts %v", b.Counts)
	}
	b.Weigh("seq-mean-token-sum", 0)
	for i, want := range []float32{1. / 7, 4. / 7, 2. / 7} {
		if got := b.Weights[i]; got[0] != 0 || got[1] != want || got[2] != want {
			t.Errorf("sequence %d: weights %v, want 0 and %v", i, got, want)
		}
	}
	if plain := BatchOf([]*episode.Episode{made(0), made(0)}); plain.Counts != nil {
		t.Errorf("counts %v of a batch without weights", plain.Counts)
	}
}
