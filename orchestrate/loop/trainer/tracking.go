package trainer

import (
	"context"
	"fmt"
	"path/filepath"

	"gyre/envs/reward"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/tracking"
)

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
		for name, score := range componentScores(e) {
			row.Components[name] = reward.Float(score)
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
