package trainer

import (
	"path/filepath"

	"gyre/orchestrate/episode"
	"gyre/orchestrate/reward"
)

// rewardTracking is the phase that records what every reply of a step earned, before the filter drops any.
type rewardTracking struct {
	*equipment
	tracker *reward.Tracker // nil when nothing is recorded
}

// openTracking opens the files of components.tracking; replayed episodes were recorded when they were played.
func (t *Trainer) openTracking() (rewardTracking, error) {
	r := rewardTracking{equipment: t.equipment}
	c := t.config
	if !c.Components.Tracking || t.replay != nil {
		return r, nil
	}
	data := dataName(c)
	var err error
	r.tracker, err = reward.OpenTracker(t.dir.File("reward_tracking_"+data), filepath.Base(c.Model.Path), data, t.state.Step)
	return r, err
}

func (r *rewardTracking) add(step int, episodes []*episode.Episode) error {
	if r.tracker == nil {
		return nil
	}
	rows := make([]reward.Tracked, len(episodes))
	members := map[int]int{}
	for i, e := range episodes {
		text, tokens, cut := r.sampler.Player.LastReply(e)
		row := reward.Tracked{Step: step - 1, GlobalStep: step, Index: i, Prompt: e.Label, Tag: e.Tag, Seed: e.Seed, Group: e.Group,
			Rollout: members[e.Group], Tokens: tokens, Truncated: cut, Total: reward.Float(e.Score), Components: map[string]reward.Float{}}
		members[e.Group]++
		for name, parts := range e.Components {
			sum := 0.0
			for _, p := range parts {
				sum += p.Value
			}
			row.Components[name] = reward.Float(sum)
		}
		row.Complete(text, e.Success)
		rows[i] = row
	}
	statistics, err := r.tracker.Add(rows)
	if err == nil {
		r.log.Infof("step %d rewards: %s", step, statistics)
	}
	return err
}

func (r *rewardTracking) flush() error { return r.tracker.Flush() }
func (r *rewardTracking) close() error { return r.tracker.Close() }
