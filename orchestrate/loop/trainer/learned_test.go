package trainer

import (
	"context"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/session"
)

// What the update knows of tokens stands beside the episodes: ratios where old log-probs were computed again, entropies
// where the step has them, and nothing of replayed episodes.
func TestWhatAnUpdateKnowsIsSaved(t *testing.T) {
	run := given(t, twoGroups)
	dir := t.TempDir()
	s := &Step{Number: 3}
	s.Chosen.Episodes = handwritten(t, strings.Split(strings.TrimSpace(twoGroups), "\n")...)[:2]
	s.Chosen.Batch = session.BatchOf(s.Chosen.Episodes)
	for i, e := range s.Chosen.Episodes {
		e.Index, e.Logprob = 7+i, make([]float32, len(e.IDs))
		old, advantages := make([]float32, len(e.IDs)), make([]float32, len(e.IDs))
		for k := range old {
			old[k], advantages[k] = float32(math.Log(2)), float32(i)-0.5
		}
		s.Chosen.Batch.Old = append(s.Chosen.Batch.Old, old)
		s.Chosen.Batch.Advantages = append(s.Chosen.Batch.Advantages, advantages)
	}
	observer := &learnedObserver{Session: run.Session, dir: dir}
	for _, sampled := range []bool{false, true} {
		s.Chosen.sampled = sampled
		if err := observer.Look(context.Background(), s); err != nil {
			t.Fatal(err)
		}
		found, err := episode.ReadLearned(filepath.Join(dir, "update_3.jsonl"))
		if err != nil || len(found) != 2 {
			t.Fatalf("%v, %v", found, err)
		}
		l := found[8]
		if len(l.Advantages) != 1 || l.Advantages[0] != [2]float64{2, 0.5} || l.Entropies != nil {
			t.Errorf("advantages %v, entropies %v", l.Advantages, l.Entropies)
		}
		if (l.Ratios == nil) != sampled || !sampled && math.Abs(l.Ratios[0][1]-2) > 1e-6 {
			t.Errorf("log-probs of the sampler: %t; ratios %v", sampled, l.Ratios)
		}
	}
	if !observer.Due(1) {
		t.Error("nothing is saved of a run that saves episodes")
	}
	for _, o := range run.ofBatches {
		if _, saves := o.Observer.(*learnedObserver); saves {
			t.Error("replayed episodes are saved")
		}
	}
}
