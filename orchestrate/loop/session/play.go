package session

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gyre/envs"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/loop/tracking"
	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/spans"
)

// Rollouts plays episodes with a session's policy and saves them.
type Rollouts struct {
	*Session
	Dir string // folder that episodes are saved in; "" saves none
	// Window, if not nil, plays with the same sampler: it pauses while a plan is played.
	Window *rollout.Window
}

// Play runs a plan with a progress bar and frees the sampler's KV cache afterwards: training needs the memory.
func (r *Rollouts) Play(ctx context.Context, plan rollout.Plan, label string) ([]*episode.Episode, rollout.Stats,
	error) {
	if err := r.Window.Pause(); err != nil {
		return nil, rollout.Stats{}, fmt.Errorf("%s: %w", label, err)
	}
	if err := r.Actor.Model.Gather(); err != nil {
		return nil, rollout.Stats{}, fmt.Errorf("%s: weights for the sampler: %w", label, err)
	}
	episodes, stats, err := r.watch(ctx, r.Sampler.Player, plan, label)
	if err != nil {
		return nil, stats, err
	}
	return episodes, stats, r.Sampler.Engine.Sleep()
}

// watch plays a plan with a progress bar and says what went wrong.
func (s *Session) watch(ctx context.Context, player *rollout.Player, plan rollout.Plan, label string) (
	[]*episode.Episode, rollout.Stats, error) {
	bar := s.Console.Bar(label, plan.Episodes())
	defer bar.Close()
	plan.Progress = func(finished, total int) { // of this rank's: the others are about as far
		bar.Set(finished * plan.Episodes() / total)
	}
	ctx, end := spans.Play(ctx, string(plan.Stream), plan.Step, plan.Episodes())
	episodes, stats, err := player.Play(ctx, plan)
	end(err)
	if err != nil {
		return nil, stats, fmt.Errorf("%s: %w", label, err)
	}
	s.Warn(stats, label)
	return episodes, stats, nil
}

// Warn says what went wrong with environments.
func (s *Session) Warn(stats rollout.Stats, label string) {
	for _, line := range stats.Warnings() {
		s.Log.Warnf("%s: %s", label, line)
	}
	if stats.LeftOut > 0 {
		s.Log.Warnf("%s: %d of %d episodes are left out (failed: %s; docs/stuck.md, section 2)", label, stats.LeftOut, stats.Planned,
			stats.FailedCauses())
	}
}

// Save writes episodes to the folder if they are wanted.
func (r *Rollouts) Save(episodes []*episode.Episode, name string, wanted bool) error {
	if r.Dir == "" || !wanted || len(episodes) == 0 || !r.World.Writes() {
		return nil
	}
	if err := episode.WriteFile(filepath.Join(r.Dir, name), episodes); err != nil {
		return fmt.Errorf("saving the episodes: %w", err)
	}
	return nil
}

// Validation plays the fixed validation set. draw keys its random numbers, step names its metrics and episodes:
// supervised runs, which draw by epoch, count optimizer steps.
func (r *Rollouts) Validation(ctx context.Context, draw, step int) (metrics.Line, []*episode.Episode, error) {
	begin := time.Now()
	episodes, stats, err := r.Play(ctx, rollout.ValidationPlan(r.Config, draw), fmt.Sprintf("step %d validation", step))
	if err != nil {
		return nil, nil, err
	}
	for _, e := range episodes {
		e.Step = step
	}
	if err := r.track(episodes, step); err != nil {
		return nil, nil, err
	}
	line, found := coreValidation(episodes), rollout.Summarize(episodes)
	line.Add(validationMetrics{found.Length, found.Cut, found.Environments},
		TestingMetrics{time.Since(begin).Seconds(), stats.LeftOut})
	return line, episodes, r.Save(episodes, fmt.Sprintf("validation_%d.jsonl", step),
		r.Config.Run.SaveRollouts != "none")
}

// validationMetrics are what a validation found.
type validationMetrics struct {
	Length       *float64             `metric:"val-env/all/response_length"`
	Cut          *float64             `metric:"val-env/all/cut_ratio"`
	Environments rollout.Environments `metric:"val-env"`
}

// TestingMetrics are the time of a validation and what it lacks.
type TestingMetrics struct {
	Seconds float64 `metric:"timing_s/testing" unit:"s" doc:"time of the validation after the step"`
	LeftOut int     `metric:"val-env/all/left_out,omitzero" unit:"episodes" doc:"whose environments failed twice"`
}

// track writes validation replies with the log-probs of their tokens.
func (r *Rollouts) track(episodes []*episode.Episode, step int) error {
	if !r.Config.Validation.Tracking || r.Dir == "" || !r.World.Writes() {
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
		reply := tracking.Reply{Prompt: r.Sampler.Player.Text(e.IDs[turn.Observation:turn.Reply]), UID: e.Label,
			GroundTruth: e.Gold,
			Response:    r.Sampler.Player.Text(ids), ResponseTokens: r.Sampler.Player.TokenTexts(ids),
			Reward: envs.Indicator(e.Success), Step: step,
			RolloutIndex: members[e.Group]}
		members[e.Group]++
		if e.Label == "" {
			reply.UID = fmt.Sprintf("%s/%d", e.Tag, e.Seed)
		}
		reply.TokenLogProbs = logprobsOf(e, turn)
		replies = append(replies, reply)
	}
	return tracking.WriteReplies(filepath.Join(filepath.Dir(r.Dir), replyFolder(r.Config)), step, replies)
}

// logprobsOf are the log-probs of a reply's tokens: nil where they are not known, because what the policy sampled is
// not the text that it goes on from (rollout.replies = "action"), or because the members of a group have temperatures
// of their own.
func logprobsOf(e *episode.Episode, turn episode.Turn) []*float64 {
	out := make([]*float64, turn.End-turn.Reply)
	for t := range out {
		if e.Logprob != nil {
			out[t] = new(float64(e.Logprob[turn.Reply+t]))
		}
	}
	return out
}

// BatchOf makes a batch of episodes whose columns are still to be filled.
func BatchOf(episodes []*episode.Episode) *train.Batch {
	b := &train.Batch{Sequences: make([]train.Sequence, len(episodes))}
	for i, e := range episodes {
		b.Sequences[i] = train.Sequence{IDs: e.IDs, Mask: e.Mask, Starts: e.Contexts}
	}
	if slices.ContainsFunc(episodes, func(e *episode.Episode) bool { return e.Weight != 0 }) {
		for _, e := range episodes {
			b.Counts = append(b.Counts, cmp.Or(e.Weight, 1))
		}
	}
	return b
}

// GroupIDs are the groups of episodes, one for each episode.
func GroupIDs(episodes []*episode.Episode) []int {
	ids := make([]int, len(episodes))
	for i, e := range episodes {
		ids[i] = e.Group
	}
	return ids
}

// Members lists the episodes of each group in the order of groups.
func Members(episodes []*episode.Episode) (groups [][]*episode.Episode) {
	byGroup := map[int][]*episode.Episode{}
	for _, e := range episodes {
		byGroup[e.Group] = append(byGroup[e.Group], e)
	}
	for _, id := range slices.Sorted(maps.Keys(byGroup)) {
		groups = append(groups, byGroup[id])
	}
	return groups
}

// coreValidation names a validation's returns and successes per tag as verl does: mean@K over all episodes, best@K
// and worst@K over the K members of each group.
func coreValidation(episodes []*episode.Episode) metrics.Line {
	type found struct{ mean, best, worst, episodes, groups float64 }
	all := map[string]found{}
	for _, group := range Members(episodes) {
		rewards, successes := make([]float64, len(group)), make([]float64, len(group))
		for i, e := range group {
			rewards[i], successes[i] = e.Return(), envs.Indicator(e.Success)
		}
		kinds := map[string][]float64{"reward": rewards, "acc": successes}
		if group[0].Unjudged {
			delete(kinds, "acc")
		}
		for kind, values := range kinds {
			key := fmt.Sprintf("val-core/%s/%s/%%s@%d", group[0].Tag, kind, len(group))
			sum := all[key]
			for _, v := range values {
				sum.mean += v
			}
			sum.best += slices.Max(values)
			sum.worst += slices.Min(values)
			sum.episodes += float64(len(group))
			sum.groups++
			all[key] = sum
		}
	}
	m := metrics.Line{}
	for key, sum := range all {
		m[fmt.Sprintf(key, "mean")] = sum.mean / sum.episodes
		if sum.episodes > sum.groups {
			m[fmt.Sprintf(key, "best")], m[fmt.Sprintf(key, "worst")] = sum.best/sum.groups, sum.worst/sum.groups
		}
	}
	return m
}

// mostReward is the largest reward of given episodes: its square is far from the limits of float64, and advantages
// are float32.
const mostReward = 1e30

// ReadGiven reads episodes that are given instead of played.
func ReadGiven(path string) ([]*episode.Episode, error) {
	episodes, err := episode.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for i, e := range episodes {
		rewards := append(slices.Clone(e.Rewards), episode.Reward{Value: e.Score})
		for _, own := range e.Components {
			rewards = append(rewards, own...)
		}
		for _, r := range rewards {
			if math.Abs(r.Value) > mostReward {
				return nil, fmt.Errorf("%s: episode %d (group %d) has a reward or score of %g: expected at most %g "+
					"in size, so that advantages fit their type", path, i+1, e.Group,
					r.Value, mostReward)
			}
		}
	}
	return episodes, nil
}

// GradientFolder is the name of a run's folder of the gradients of reward components.
func GradientFolder(c *config.Config) string { return "gradient_analysis_" + DataName(c) }

// RewardFolder is the name of a run's folder of what replies earned.
func RewardFolder(c *config.Config) string { return "reward_tracking_" + DataName(c) }

// replyFolder is the name of a run's folder of validation replies.
func replyFolder(c *config.Config) string { return "ppl_tracking_" + DataName(c) }

// DataName is what these folders say of the data.
func DataName(c *config.Config) string {
	if c.Components.Data == "" && len(c.Envs) > 0 {
		return strings.ReplaceAll(c.Envs[0].Tag, "/", "_")
	}
	return c.Components.Data
}

// LinkFolders puts links to those of the folders that the run writes where components.link says.
func (t *Training) LinkFolders() error {
	c := t.Config
	if c.Components.Link == "" || t.Dir == nil || !t.World.Writes() {
		return nil
	}
	for name, written := range map[string]bool{
		GradientFolder(c): c.Components.Enabled,
		RewardFolder(c):   c.Components.Tracking,
		replyFolder(c):    c.Validation.Tracking,
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
