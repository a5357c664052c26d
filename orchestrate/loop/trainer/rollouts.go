package trainer

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/run/metrics"
)

// rollouts is the phase that gets the episodes of a step: it plays them, or takes those that were given.
type rollouts struct {
	*equipment
	clock *clock
	dir   string // folder that episodes are saved in; "" saves none
}

// training plays (or replays) the step's episodes, saves them, and records what they were like.
func (r *rollouts) training(ctx context.Context, step int, line metrics.Line) ([]*episode.Episode, error) {
	if r.replay != nil {
		episodes := r.replay.at(step)
		r.describe(episodes, line)
		return episodes, nil
	}
	c := r.config
	before, err := r.sampler.Engine.Stats()
	if err != nil {
		return nil, err
	}
	episodes, stats, err := r.play(ctx, rollout.TrainingPlan(c, step), fmt.Sprintf("step %d rollout", step))
	if err != nil {
		return nil, err
	}
	after, err := r.sampler.Engine.Stats()
	if err != nil {
		return nil, err
	}
	r.clock.sampling(before, after)
	r.clock.add("gen", stats.Generation)
	r.clock.add("env_wait", stats.EnvWait)
	line.Add(stats.Metrics())
	line.Add(samplingMetrics{float64(stats.NewTokens) / max(stats.Generation.Seconds(), 1e-9)})
	r.describe(episodes, line)
	return episodes, r.save(episodes, fmt.Sprintf("step_%d.jsonl", step), c.Run.SaveRollouts == "all")
}

// save writes episodes to the folder rollouts of the run if they are wanted.
func (r *rollouts) save(episodes []*episode.Episode, name string, wanted bool) error {
	if r.dir == "" || !wanted || !r.world.Writes() {
		return nil
	}
	if err := episode.WriteFile(filepath.Join(r.dir, name), episodes); err != nil {
		return fmt.Errorf("saving the episodes: %w", err)
	}
	return nil
}

// analysis plays the separate analysis batch of a step.
func (r *rollouts) analysis(ctx context.Context, step int, line metrics.Line) ([]*episode.Episode, error) {
	plan := rollout.AnalysisPlan(r.config, step)
	episodes, _, err := r.play(ctx, plan, fmt.Sprintf("step %d analysis rollout", step))
	if err != nil {
		return nil, err
	}
	line.Add(sourceMetrics{Groups: plan.Groups(), GroupSize: plan.Sources[0].GroupSize})
	return episodes, r.save(episodes, fmt.Sprintf("analysis_%d.jsonl", step), r.config.Run.SaveRollouts == "all")
}

// play runs a plan with a progress bar and frees the sampler's KV cache afterwards: training needs the memory.
func (r *rollouts) play(ctx context.Context, plan rollout.Plan, label string) ([]*episode.Episode, rollout.Stats, error) {
	bar := r.console.Bar(label, plan.Episodes())
	defer bar.Close()
	plan.World, plan.SamplerRanks = r.world, r.together()
	plan.Progress = func(finished, total int) { // of the slowest rank
		share := r.world.Progress(label, float64(finished)/float64(total))
		bar.Set(int(share * float64(plan.Episodes())))
	}
	if err := r.actor.Model.Gather(); err != nil {
		return nil, rollout.Stats{}, fmt.Errorf("%s: weights for the sampler: %w", label, err)
	}
	episodes, stats, err := r.sampler.Player.Play(ctx, plan)
	if err != nil {
		return nil, stats, fmt.Errorf("%s: %w", label, err)
	}
	for _, line := range stats.Warnings() {
		r.log.Warnf("%s: %s", label, line)
	}
	if stats.LeftOut > 0 {
		r.log.Warnf("%s: %d of %d episodes are left out (failed: %s)", label, stats.LeftOut, stats.Planned, stats.FailedCauses())
	}
	return episodes, stats, r.sampler.Engine.Sleep()
}

// describe adds the environments' metrics. The two keys that are not an environment's keep their own names.
func (r *rollouts) describe(episodes []*episode.Episode, line metrics.Line) {
	for name, v := range rollout.Summarize(episodes) {
		if strings.Contains(name, "/") {
			name = "train/" + name
		}
		line[name] = v
	}
}

// validation plays the fixed validation set. draw keys its random numbers, step names its metrics and episodes: supervised runs, which
// draw by epoch, count optimizer steps.
func (r *rollouts) validation(ctx context.Context, draw, step int) (map[string]float64, error) {
	begin := time.Now()
	episodes, _, err := r.play(ctx, rollout.ValidationPlan(r.config, draw), fmt.Sprintf("step %d validation", step))
	if err != nil {
		return nil, err
	}
	for _, e := range episodes {
		e.Step = step
	}
	if err := r.track(episodes, step); err != nil {
		return nil, err
	}
	m := validationMetrics(episodes)
	m["timing_s/testing"] = time.Since(begin).Seconds()
	return m, r.save(episodes, fmt.Sprintf("validation_%d.jsonl", step), r.config.Run.SaveRollouts != "none")
}

// replay feeds saved or hand-written episodes to the update instead of played ones. A file whose episodes all carry the same step number
// (or none) is used at every step; one with several is used in their order, one per training step.
type replay struct {
	path  string
	steps [][]*episode.Episode
}

func openReplay(path string, steps int) (*replay, error) {
	episodes, err := readGiven(path)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	byStep := map[int][]*episode.Episode{}
	var order []int
	for _, e := range episodes {
		if byStep[e.Step] == nil {
			order = append(order, e.Step)
		}
		byStep[e.Step] = append(byStep[e.Step], e)
	}
	slices.Sort(order)
	r := &replay{path: path}
	for _, step := range order {
		r.steps = append(r.steps, byStep[step])
	}
	if len(r.steps) > 1 && len(r.steps) < steps {
		return nil, fmt.Errorf("replay: %s holds episodes of %d steps but run.steps is %d: set run.steps=%d or fewer", path, len(r.steps), steps, len(r.steps))
	}
	return r, nil
}

// at returns the episodes of training step 1, 2, …
func (r *replay) at(step int) []*episode.Episode {
	if len(r.steps) == 1 {
		return r.steps[0]
	}
	return r.steps[step-1]
}

// mostReward is the largest reward of given episodes: its square is far from the limits of float64, and advantages are float32.
const mostReward = 1e30

// readGiven reads episodes that are given instead of played.
func readGiven(path string) ([]*episode.Episode, error) {
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
				return nil, fmt.Errorf("%s: episode %d (group %d) has a reward or score of %g: expected at most %g in size, so that advantages fit their type", path, i+1, e.Group,
					r.Value, mostReward)
			}
		}
	}
	return episodes, nil
}
