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
	if !c.Components.Tracking || t.replay != nil || !t.world.Writes() {
		return r, nil
	}
	data := dataName(c)
	var err error
	r.tracker, err = tracking.OpenTracker(t.dir.File("reward_tracking_"+data), filepath.Base(c.Model.Path), data, t.state.Step)
	return r, err
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
		reply.TokenLogProbs = make([]*float64, len(ids))
		for t := range reply.TokenLogProbs {
			if e.Logprob != nil { // not known where the text that the policy saw is not what it sampled, or one group had several temperatures
				p := float64(e.Logprob[turn.Reply+t])
				reply.TokenLogProbs[t] = &p
			}
		}
		replies = append(replies, reply)
	}
	return tracking.WriteReplies(filepath.Join(filepath.Dir(r.dir), "ppl_tracking_"+dataName(r.config)), step, replies)
}
