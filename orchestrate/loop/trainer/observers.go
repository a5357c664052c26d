package trainer

import (
	"context"
	"fmt"
	"math"
	"path/filepath"

	"gyre/envs"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/collapse"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/tracking"
	"gyre/orchestrate/loop/train"
)

// collapseObserver measures what thoughts owe to their prompts, before filtering, under the policy that played.
type collapseObserver struct {
	*session.Session
	meter *collapse.Meter
}

func (o *collapseObserver) Due(step int) bool {
	every := o.Config.Collapse.Every
	return every > 0 && (step == 1 || step%every == 0)
}

func (o *collapseObserver) Look(ctx context.Context, s *Step) error {
	decode := func(ids []int32) string { return o.Sampler.Tokenizer.Decode(ids, false) }
	rng := envs.Rand("collapse", int64(o.Config.Run.Seed), int64(s.Number))
	score := func(sequences []collapse.Sequence) ([]float64, error) { return o.scoreThoughts(ctx, sequences) }
	found, err := o.meter.Measure(s.Episodes, decode, score, o.Config.Collapse, rng)
	if err != nil {
		return fmt.Errorf("collapse diagnostics: %w", err)
	}
	s.Line.Add(found)
	return nil
}

// scoreThoughts sums the log-probs of each sequence's thought. Sequences with one prompt share its tokens.
func (o *collapseObserver) scoreThoughts(ctx context.Context, sequences []collapse.Sequence) ([]float64, error) {
	b := &train.Batch{}
	for _, s := range sequences {
		mask := make([]bool, len(s.IDs))
		for k := s.From; k < len(mask); k++ {
			mask[k] = true
		}
		b.Sequences = append(b.Sequences, train.Sequence{IDs: s.IDs, Mask: mask})
	}
	logprobs, err := o.Actor.Compute(ctx, b, train.What{Temperature: experiment.Temperature(o.Config)})
	sums := make([]float64, len(sequences))
	for i, list := range logprobs {
		for _, l := range list {
			sums[i] += float64(l)
		}
	}
	return sums, err
}

// rewardObserver records what every reply of a step earned, before the filter drops any.
type rewardObserver struct {
	*session.Session
	tracker *tracking.Tracker // nil when nothing is recorded
}

// openTracker opens the files of components.tracking; nil where they are not wanted.
func (t *Trainer) openTracker() (*tracking.Tracker, error) {
	c := t.Config
	if !c.Components.Tracking || !t.World.Writes() {
		return nil, nil
	}
	return tracking.OpenTracker(t.Dir.File(session.RewardFolder(c)), filepath.Base(c.Model.Path), session.DataName(c),
		t.State.Step)
}

func (r *rewardObserver) Due(int) bool { return r.tracker != nil }

func (r *rewardObserver) Look(_ context.Context, s *Step) error {
	rows := make([]tracking.Tracked, len(s.Episodes))
	for i, e := range s.Episodes {
		components := map[string]float64{}
		for name, rewards := range e.Components {
			components[name] = episode.Sum(rewards)
		}
		rows[i] = tracking.Track(i, r.Sampler.Player.LastReply(e), components, e.Success)
	}
	statistics, err := r.tracker.Add(s.Number-1, rows)
	if err == nil {
		r.Log.Infof("step %d rewards: %s", s.Number, statistics)
	}
	return err
}

// learnedObserver writes what the update knows of the tokens beside the step's episodes, where these are saved:
// advantages, and ratios and entropies where the step has computed them anyway. Pages that show episodes read it.
type learnedObserver struct {
	*session.Session
	dir string // of the episodes
}

func (o *learnedObserver) Due(int) bool {
	return o.dir != "" && o.Config.Run.SaveRollouts == "all" && o.World.Writes()
}

func (o *learnedObserver) Look(_ context.Context, s *Step) error {
	b := s.Chosen.Batch
	list := make([]episode.Learned, len(s.Chosen.Episodes))
	for i, e := range s.Chosen.Episodes {
		list[i] = episode.Learned{Episode: e.Index, Advantages: episode.PairsOf(b.Advantages[i], e.Mask)}
		if !s.Chosen.sampled && e.Logprob != nil {
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
