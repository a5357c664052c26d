package session

import (
	"testing"

	"gyre/orchestrate/loop/episode"
)

// Validation replies without log-probs have unknown ones.
func TestLogprobsOfRepliesWithoutThem(t *testing.T) {
	e := &episode.Episode{IDs: []int32{1, 2, 3, 4}, Mask: []bool{false, false, true, true}}
	turn := episode.Turn{Reply: 2, End: 4}
	if got := logprobsOf(e, turn); len(got) != 2 || got[0] != nil || got[1] != nil {
		t.Errorf("%v", got)
	}
	e.Logprob = []float32{0, 0, -.5, -.25}
	if got := logprobsOf(e, turn); len(got) != 2 || *got[0] != -.5 || *got[1] != -.25 {
		t.Errorf("%v", got)
	}
}
