package trainer

import (
	"context"
	"fmt"
	"math"
	"path/filepath"

	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/session"
)

// learnedObserver writes what the update knows of the tokens beside the step's episodes, where these are saved:
// advantages, and ratios and entropies where the step has computed them anyway. Pages that show episodes read it.
type learnedObserver struct {
	*session.Session
	dir   string // of the episodes
	given bool   // episodes are replayed: they are saved elsewhere
}

func (o *learnedObserver) Due(int) bool {
	return !o.given && o.dir != "" && o.Config.Run.SaveRollouts == "all" && o.World.Writes()
}

func (o *learnedObserver) Look(_ context.Context, s *Step) error {
	b := s.Chosen.Batch
	list := make([]episode.Learned, len(s.Chosen.Episodes))
	for i, e := range s.Chosen.Episodes {
		list[i] = episode.Learned{Episode: e.Index, Advantages: episode.PairsOf(b.Advantages[i], e.Mask)}
		if !s.Chosen.oldFromSampler && e.Logprob != nil {
			ratios := make([]float32, len(e.IDs))
			for t := range ratios {
				ratios[t] = float32(math.Exp(float64(b.Old[i][t]) - float64(e.Logprob[t])))
			}
			list[i].Ratios = episode.PairsOf(ratios, e.Mask)
		}
		if s.Chosen.entropies != nil {
			list[i].Entropies = episode.PairsOf(s.Chosen.entropies[i], e.Mask)
		}
	}
	if err := episode.WriteLearned(filepath.Join(o.dir, fmt.Sprintf("update_%d.jsonl", s.Number)), list); err != nil {
		return fmt.Errorf("saving what the update knows of the episodes: %w", err)
	}
	return nil
}
