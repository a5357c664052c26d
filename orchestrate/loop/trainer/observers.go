package trainer

import (
	"context"
	"fmt"
	"path/filepath"

	"gyre/envs"
	"gyre/envs/reward"
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
	return every > 0 && o.Sampler != nil && (step == 1 || step%every == 0)
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
	logprobs, err := o.Actor.Score(ctx, b, train.What{Temperature: experiment.Temperature(o.Config)})
	sums := make([]float64, len(sequences))
	for i, list := range logprobs {
		for _, l := range list {
			sums[i] += float64(l)
		}
	}
	return sums, err
}

// rewardTracking is the phase that records what every reply of a step earned, before the filter drops any.
type rewardTracking struct {
	*session.Session
	tracker *tracking.Tracker // nil when nothing is recorded
}

// openTracking opens the files of components.tracking; replayed episodes were recorded when they were played.
func (t *Trainer) openTracking() (rewardTracking, error) {
	r := rewardTracking{Session: t.Session}
	c := t.Config
	if err := t.link(); err != nil {
		return r, err
	}
	if !c.Components.Tracking || t.rollouts.replay != nil || !t.World.Writes() {
		return r, nil
	}
	data := session.DataName(c)
	var err error
	dir := t.Dir.File("reward_tracking_" + data)
	r.tracker, err = tracking.OpenTracker(dir, filepath.Base(c.Model.Path), data, t.State.Step)
	return r, err
}

// link puts links to the folders that the run writes where components.link says.
func (t *Trainer) link() error {
	c, data := t.Config, session.DataName(t.Config)
	if c.Components.Link == "" || t.Dir == nil || !t.World.Writes() {
		return nil
	}
	for name, written := range map[string]bool{
		componentFolder(c):        c.Components.Enabled,
		"reward_tracking_" + data: c.Components.Tracking,
		"ppl_tracking_" + data:    c.Validation.Tracking,
	} {
		if !written {
			continue
		}
		own, link := t.Dir.File(name), filepath.Join(c.Components.Link, name)
		taken, err := tracking.Link(own, link)
		if err != nil {
			return fmt.Errorf("components.link: %w", err)
		}
		if taken {
			t.Log.Warnf("components.link: %s exists and is no link: the run's own folder is %s", link, own)
		}
	}
	return nil
}

func (r *rewardTracking) Due(int) bool { return r.tracker != nil }

func (r *rewardTracking) Look(_ context.Context, s *Step) error {
	step, episodes := s.Number, s.Episodes
	rows := make([]tracking.Tracked, len(episodes))
	members := map[int]int{}
	for i, e := range episodes {
		text, tokens, cut := r.Sampler.Player.LastReply(e)
		row := tracking.Tracked{Step: step - 1, GlobalStep: step, Index: i, Prompt: e.Label, Tag: e.Tag, Seed: e.Seed,
			Group: e.Group, Rollout: members[e.Group], Tokens: tokens, Truncated: cut, Total: reward.Float(e.Score),
			Components: map[string]reward.Float{}}
		members[e.Group]++
		for name, rewards := range e.Components {
			row.Components[name] = reward.Float(episode.Sum(rewards))
		}
		row.Complete(text, e.Success)
		rows[i] = row
	}
	statistics, err := r.tracker.Add(rows)
	if err == nil {
		r.Log.Infof("step %d rewards: %s", step, statistics)
	}
	return err
}
