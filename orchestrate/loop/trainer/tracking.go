package trainer

import (
	"context"
	"fmt"
	"path/filepath"

	"gyre/envs/reward"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/tracking"
)

// rewardTracking is the phase that records what every reply of a step earned, before the filter drops any.
type rewardTracking struct {
	*equipment
	tracker *tracking.Tracker // nil when nothing is recorded
}

// openTracking opens the files of components.tracking; replayed episodes were recorded when they were played.
func (t *Trainer) openTracking() (rewardTracking, error) {
	r := rewardTracking{equipment: t.equipment}
	c := t.config
	if err := t.link(); err != nil {
		return r, err
	}
	if !c.Components.Tracking || t.replay != nil || !t.world.Writes() {
		return r, nil
	}
	data := dataName(c)
	var err error
	r.tracker, err = tracking.OpenTracker(t.dir.File("reward_tracking_"+data), filepath.Base(c.Model.Path), data, t.state.Step)
	return r, err
}

// link puts links to the folders that the run writes where components.link says.
func (t *Trainer) link() error {
	c, data := t.config, dataName(t.config)
	if c.Components.Link == "" || t.dir == nil || !t.world.Writes() {
		return nil
	}
	for name, written := range map[string]bool{
		componentFolder(c): c.Components.Enabled, "reward_tracking_" + data: c.Components.Tracking, "ppl_tracking_" + data: c.Validation.Tracking,
	} {
		if !written {
			continue
		}
		taken, err := tracking.Link(t.dir.File(name), filepath.Join(c.Components.Link, name))
		if err != nil {
			return fmt.Errorf("components.link: %w", err)
		}
		if taken {
			t.log.Warnf("components.link: %s is there and no link: the run's own is %s", filepath.Join(c.Components.Link, name), t.dir.File(name))
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
		text, tokens, cut := r.sampler.Player.LastReply(e)
		row := tracking.Tracked{Step: step - 1, GlobalStep: step, Index: i, Prompt: e.Label, Tag: e.Tag, Seed: e.Seed, Group: e.Group,
			Rollout: members[e.Group], Tokens: tokens, Truncated: cut, Total: reward.Float(e.Score), Components: map[string]reward.Float{}}
		members[e.Group]++
		for name, score := range componentScores(e) {
			row.Components[name] = reward.Float(score)
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

// track writes validation replies with the log-probs of their tokens.
func (r *rollouts) track(episodes []*episode.Episode, step int) error {
	if !r.config.Validation.Tracking || r.dir == "" || !r.world.Writes() {
		return nil
	}
	replies := make([]tracking.Reply, 0, len(episodes))
	members := map[int]int{}
	for _, e := range episodes {
		if len(e.Turns) == 0 {
			continue
		}
		turn := e.Turns[len(e.Turns)-1]
		ids := e.IDs[turn.Reply:turn.End]
		reply := tracking.Reply{Prompt: r.sampler.Player.Text(e.IDs[turn.Observation:turn.Reply]), UID: e.Label, GroundTruth: e.Gold,
			Response: r.sampler.Player.Text(ids), ResponseTokens: r.sampler.Player.TokenTexts(ids), Reward: flag(e.Success), Step: step,
			RolloutIndex: members[e.Group]}
		members[e.Group]++
		if e.Label == "" {
			reply.UID = fmt.Sprintf("%s/%d", e.Tag, e.Seed)
		}
		reply.TokenLogProbs = logprobsOf(e, turn)
		replies = append(replies, reply)
	}
	return tracking.WriteReplies(filepath.Join(filepath.Dir(r.dir), "ppl_tracking_"+dataName(r.config)), step, replies)
}

// logprobsOf are the log-probs of a reply's tokens: nil where they are not known, because what the policy sampled is not the text that it goes on
// from (rollout.replies = "action"), or because the members of a group have temperatures of their own.
func logprobsOf(e *episode.Episode, turn episode.Turn) []*float64 {
	out := make([]*float64, turn.End-turn.Reply)
	for t := range out {
		if e.Logprob != nil {
			p := float64(e.Logprob[turn.Reply+t])
			out[t] = &p
		}
	}
	return out
}
