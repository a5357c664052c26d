package trainer

import (
	"context"
	"fmt"
	"maps"
	"path"
	"strings"
	"time"

	"gyre/torch"
)

// whyEmpty says what is wrong when a step has nothing to learn from because no reply was understood.
func (t *Trainer) whyEmpty(m map[string]float64) string {
	most := map[string]float64{} // over the tags, where there are any
	for name, v := range m {
		if key := path.Base(name); strings.HasPrefix(name, "train/") && (key == "num_actions" || key == "action_is_valid") {
			most[key] = max(most[key], v)
		}
	}
	acted, played := most["num_actions"]
	valid, judged := most["action_is_valid"]
	if !played || acted > 0 && (!judged || valid > 0) {
		return ""
	}
	return ": no reply named a valid action, so all episodes earned the same (`gyre sft` with this configuration and another run.name teaches the policy the format; then " +
		"train with model.path=…/global_step_N/actor)"
}

// noteSoundness remembers since when gradients are not finite, and which checkpoint is from before that.
func (t *Trainer) noteSoundness(step int, m map[string]float64) error {
	s := &t.state
	switch skipped := m["actor/skipped_steps"] + m["critic/skipped_steps"]; {
	case skipped == 0:
		s.Unsound, s.Sound = 0, 0
		return t.checkpoints.proven(*s)
	case s.Unsound == 0:
		s.Unsound, s.Sound = step, max(t.checkpoints.saved, 0)
	}
	return nil
}

// judgeSampler withdraws the proof that the sampler's log-probs are the trainer's when an update has measured a gap between them.
func (t *Trainer) judgeSampler(step int, m map[string]float64) {
	gap := m["rollout/logprob_gap_max"]
	m["rollout/sampler_equals_trainer"] = flag(t.exact && gap == 0)
	if !t.exact || gap == 0 {
		return
	}
	t.exact, t.preparation.exact, t.state.SamplerGap = false, false, gap
	t.log.Warnf("step %d: the sampler's log-probs are up to %.2g away from the trainer's, though the self-test found none: from now on old "+
		"log-probs are recomputed every step (please report the processor)", step, gap)
}

// step runs one training step and returns its metrics. A *StoppedEarly error ends the run after its metrics are written.
//
// Order (RAGEN's): rollout, collapse diagnostics, filter, collapse checks, log-probs and values, advantages, critic, gradient analysis, actor.
func (t *Trainer) step(ctx context.Context) (map[string]any, error) {
	step := t.state.Step + 1
	begin := time.Now()
	sent, waited := t.world.Traffic()
	m := map[string]float64{}
	tables := map[string]any{}
	if t.checkpoints.took > 0 {
		m["timing_s/checkpoint"] = t.checkpoints.took.Seconds()
		t.checkpoints.took = 0
	}
	finish := func(err error) (map[string]any, error) {
		m["timing_s/step"] = time.Since(begin).Seconds()
		throughput(m)
		if t.world != nil {
			sentNow, waitedNow := t.world.Traffic()
			m["perf/comm_share"] = (waitedNow - waited).Seconds() / m["timing_s/step"]
			m["perf/comm_sent_gb"] = (sentNow - sent) / 1e9
		}
		m["perf/peak_rss_gib"] = float64(torch.PeakRSS()) / (1 << 30)
		if problem := t.machine.Measure(); problem != nil { // which takes memory that the run itself may not need
			t.log.Warnf("shares of the machine's peak (perf/mfu, perf/mbu) are left out: %v", problem)
		}
		t.clock.into(m, t.machine)
		if problem := t.ofAllRanks(ctx, m); problem != nil {
			return nil, problem
		}
		record(tables, m)
		return tables, err
	}

	episodes, err := t.rollouts.training(ctx, step, m)
	if err != nil {
		return nil, err
	}
	lengths(episodes, m)
	tables["rollout/reward_table"] = rewardTable(episodes)
	if err := t.tracking.add(step, episodes); err != nil {
		return nil, err
	}
	if t.collapseDue(step) {
		if err := t.measure(m, "collapse_metrics", func() error { return t.measureCollapse(ctx, step, episodes, m) }); err != nil {
			return nil, err
		}
	}
	var chosen selection
	err = t.measure(m, "filter", func() (err error) {
		chosen, err = t.preparation.choose(ctx, episodes, false)
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
	if since := t.state.Unsound; stop != nil && since > 0 {
		return finish(&errDiverged{fmt.Sprintf("the gradients of step %d were not finite, and now %s", since, stop.Reason)})
	}
	if stop != nil {
		m[stop.Metric] = 1
		return finish(stop)
	}
	if empty && !t.config.Analysis.Only {
		t.log.Warnf("step %d: the filter kept no group%s; the step is skipped", step, t.whyEmpty(m))
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
		if err := t.preparation.prepare(ctx, &chosen, m); err != nil {
			return nil, err
		}
		if t.preparation.penalty != nil {
			t.preparation.penalty.Update(chosen.divergence, len(chosen.samples))
		}
	}
	if t.critic != nil && !t.config.Analysis.Only && !empty {
		if err := t.measure(m, "update_critic", func() error { return t.update.criticSteps(ctx, chosen.samples, m) }); err != nil {
			return nil, fmt.Errorf("critic update: %w", err)
		}
	}
	ready := step > t.config.Critic.Warmup || t.critic == nil
	if ready && t.analysis.due(step) && t.analysis.possible(step, chosen) {
		if err := t.measure(m, "gradient_analysis", func() error { return t.analysis.run(ctx, step, chosen, m, tables) }); err != nil {
			return nil, err
		}
		if t.config.Analysis.ExitAfter {
			m["trainer/exited_after_gradient_analysis"] = 1
			return finish(errAnalysed)
		}
	}
	if ready && !empty && t.components.due(step) {
		err := t.measure(m, "grad_components", func() error {
			text, err := t.components.run(ctx, step, chosen, tables)
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
		if err := t.measure(m, "update_actor", func() error { return t.update.actorSteps(ctx, chosen, m) }); err != nil {
			return nil, fmt.Errorf("actor update: %w", err)
		}
		if t.replay == nil {
			t.judgeSampler(step, m)
		}
	}
	if !empty {
		if err := t.noteSoundness(step, m); err != nil {
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
			m["perf/grad_components_overhead"] = parts / s
		}
		m["perf/update_tokens_per_s"] = float64(tokens*t.config.Actor.Epochs) / s
	}
	return finish(nil)
}
