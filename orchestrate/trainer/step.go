package trainer

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"gyre/orchestrate/episode"
	"gyre/orchestrate/rollout"
	"gyre/torch"
)

// step runs one training step and returns its metrics. A *StoppedEarly error ends the run after its metrics are written.
//
// Order (RAGEN's): rollout, filter, collapse checks, log-probs and values, advantages, critic, gradient analysis, actor.
func (t *Trainer) step(ctx context.Context) (map[string]any, error) {
	step := t.state.Step + 1
	begin := time.Now()
	m := map[string]float64{}
	tables := map[string]any{}
	if t.checkpointTime > 0 {
		m["timing_s/checkpoint"] = t.checkpointTime.Seconds()
		t.checkpointTime = 0
	}
	finish := func(err error) (map[string]any, error) {
		m["timing_s/step"] = time.Since(begin).Seconds()
		m["perf/peak_rss_gib"] = float64(torch.PeakRSS()) / (1 << 30)
		if problem := t.profile.into(m); problem != nil {
			return nil, problem
		}
		record(tables, m)
		return tables, err
	}

	episodes, err := t.rollout(ctx, step, m)
	if err != nil {
		return nil, err
	}
	var chosen selection
	err = t.measure(m, "filter", func() (err error) {
		chosen, err = t.choose(episodes, false)
		return err
	})
	if err != nil {
		return nil, err
	}
	maps.Copy(m, chosen.Metrics)
	m["train/rollout_attempts"] = 1
	empty := len(chosen.samples) == 0
	m["rollout/empty_after_filter"] = flag(empty)
	stop := t.state.EarlyStop.Selected(empty, t.config.EarlyStop)
	m["rollout/consecutive_empty_after_filter_steps"] = float64(t.state.EarlyStop.Empty)
	if stop != nil {
		m[stop.Metric] = 1
		return finish(stop)
	}
	if empty && !t.config.Analysis.Only {
		t.log.Warnf("step %d: the filter kept no group; the step is skipped", step)
		return finish(nil)
	}
	if spread, ok := chosen.Metrics["rollout/in_group_reward_std"]; ok && !empty {
		if stop := t.state.EarlyStop.Spread(spread, t.config.EarlyStop); stop != nil {
			m[stop.Metric] = 1
			return finish(stop)
		}
	}

	if !empty {
		m["train/batch_size"] = float64(len(chosen.samples))
		m["train/num_mini_batches"] = float64(len(miniBatches(len(chosen.samples), t.config.Actor.MiniBatch)))
		if err := t.prepare(ctx, chosen, m); err != nil {
			return nil, err
		}
	}
	if t.critic != nil && !t.config.Analysis.Only && !empty {
		if err := t.measure(m, "update_critic", func() error { return t.updateCritic(ctx, chosen.samples, m) }); err != nil {
			return nil, err
		}
	}
	ready := step > t.config.Critic.Warmup || t.critic == nil
	if ready && t.analysisDue(step) && t.analysable(step, chosen) {
		if err := t.measure(m, "gradient_analysis", func() error { return t.analyse(ctx, step, chosen, m, tables) }); err != nil {
			return nil, err
		}
		if t.config.Analysis.ExitAfter {
			m["trainer/exited_after_gradient_analysis"] = 1
			return finish(errAnalysed)
		}
	}
	if ready && !empty && t.componentsDue(step) {
		err := t.measure(m, "grad_components", func() error {
			text, err := t.measureComponents(ctx, step, chosen.samples, t.dir.File(componentFolder(t.config)), tables)
			t.log.File(strings.TrimSpace(text))
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("gradients of the reward's parts: %w", err)
		}
	}
	switch {
	case t.config.Analysis.Only:
		m["trainer/gradient_analysis_only"] = 1
		m["actor/skipped_for_gradient_analysis_only"], m["critic/skipped_for_gradient_analysis_only"] = 1, 1
	case ready:
		if err := t.measure(m, "update_actor", func() error { return t.updateActor(ctx, chosen.samples, m) }); err != nil {
			return nil, err
		}
	}
	tokens := 0
	for _, s := range chosen.samples {
		tokens += len(s.IDs)
	}
	m["perf/total_num_tokens"] = float64(tokens)
	if s := m["timing_s/update_actor"]; s > 0 {
		if parts, ok := m["timing_s/grad_components"]; ok {
			m["grad_components/overhead"] = parts / s
		}
		m["perf/update_tokens_per_s"] = float64(tokens*t.config.Actor.Epochs) / s
	}
	return finish(nil)
}

// rollout plays (or replays) the step's episodes, saves them, and records what they were like.
func (t *Trainer) rollout(ctx context.Context, step int, m map[string]float64) ([]*episode.Episode, error) {
	if t.replay != nil {
		episodes := t.replay.at(step)
		t.recordEpisodes(episodes, "train/", m)
		return episodes, nil
	}
	c := t.config
	before, err := t.sampler.engine.Stats()
	if err != nil {
		return nil, err
	}
	episodes, stats, err := t.play(ctx, rollout.TrainingPlan(c, step), fmt.Sprintf("step %d rollout", step))
	if err != nil {
		return nil, err
	}
	after, err := t.sampler.engine.Stats()
	if err != nil {
		return nil, err
	}
	t.profile.sampling(before, after, m)
	maps.Copy(m, stats.Metrics())
	m["timing_s/gen"], m["timing_s/env_wait"] = stats.Generation.Seconds(), stats.EnvWait.Seconds()
	m["perf/gen_tokens_per_s"] = float64(stats.NewTokens) / max(stats.Generation.Seconds(), 1e-9)
	t.recordEpisodes(episodes, "train/", m)
	if c.Run.SaveRollouts == "all" {
		if err := episode.WriteFile(t.dir.File("rollouts", fmt.Sprintf("step_%d.jsonl", step)), episodes); err != nil {
			return nil, fmt.Errorf("saving the episodes: %w", err)
		}
	}
	return episodes, nil
}

// play runs a plan with a progress bar and frees the sampler's KV cache afterwards: training needs the memory.
func (t *Trainer) play(ctx context.Context, plan rollout.Plan, label string) ([]*episode.Episode, rollout.Stats, error) {
	bar := t.console.Bar(label, plan.Episodes())
	defer bar.Close()
	plan.Progress = func(finished, _ int) { bar.Set(finished) }
	episodes, stats, err := t.sampler.player.Play(ctx, plan)
	if err != nil {
		return nil, stats, fmt.Errorf("%s: %w", label, err)
	}
	for _, f := range stats.Failures {
		t.log.Warnf("%s: environment %s, group %d, member %d, seed %d: %s: %v", label, f.Tag, f.Group, f.Member, f.Seed, f.Stop, f.Err)
	}
	return episodes, stats, t.sampler.engine.Sleep()
}

// recordEpisodes adds the environments' metrics under a prefix. The two keys that are not an environment's keep their own names.
func (t *Trainer) recordEpisodes(episodes []*episode.Episode, prefix string, m map[string]float64) {
	for name, v := range rollout.Summarize(episodes) {
		if strings.Contains(name, "/") {
			name = prefix + name
		}
		m[name] = v
	}
}

// validate plays the fixed validation set.
func (t *Trainer) validate(ctx context.Context, step int) (map[string]float64, error) {
	begin := time.Now()
	episodes, _, err := t.play(ctx, rollout.ValidationPlan(t.config, step), fmt.Sprintf("step %d validation", step))
	if err != nil {
		return nil, err
	}
	m := map[string]float64{}
	for name, x := range rollout.Summarize(episodes) {
		if !strings.Contains(name, "/") {
			name = "all/" + name
		}
		m["val-env/"+name] = x
	}
	if t.config.Run.SaveRollouts != "none" {
		if err := episode.WriteFile(t.dir.File("rollouts", fmt.Sprintf("validation_%d.jsonl", step)), episodes); err != nil {
			return nil, fmt.Errorf("saving the validation episodes: %w", err)
		}
	}
	m["timing_s/testing"] = time.Since(begin).Seconds()
	return m, nil
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
