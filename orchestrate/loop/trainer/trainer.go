// Package trainer runs reinforcement learning: the training step in RAGEN's order, what measures it, validation and
// early stopping; and the probe of one checkpoint (gyre analyze).
//
//	play ─▶ observe ─▶ select ─▶ score ─▶ advantages ─▶ critic ─▶ observe ─▶ actor        (step.go, learn)
//	                                                                           │
//	metrics.jsonl, rollouts/step_N.jsonl ◀── checkpoint ◀── validation ◀───────┘           (trainer.go, advance)
//
// rollouts.go plays or replays the episodes; select.go filters them and has the models score them; advantages.go
// turns rewards into advantages; update.go fits critic and actor. Observers (observers.go, buckets.go, components.go,
// why.go) measure and record: a step without them gives the same weights. Directory, models,
// checkpoints and resuming are package session's, arithmetic over ranks is package train's.
//
// Everything a step draws is keyed by (seed, stream, step, episode, turn), so a step can be repeated exactly from the
// weights, the optimizer state and the few counters in session.State: that is what a checkpoint holds and why a
// resumed run equals an uninterrupted one.
//
// Deviations from verl's PPO worker, all on purpose: no row is duplicated to fill a mini-batch (a short last
// mini-batch is normalised by its own token count); losses are normalised over the whole mini-batch instead of
// averaging micro-batch means; the sampler's log-probs serve as old log-probs when they are proven equal;
// learning-rate schedules act.
package trainer

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/schedule"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/run/interrupt"
)

// Trainer is one run of reinforcement learning. Each phase of its steps has a type of its own, with the state that
// belongs to it.
type Trainer struct {
	*session.Training
	samplers    *samplers // ranks that only sample; nil where those that train do
	clock       *session.Clock
	rollouts    rollouts
	preparation preparation
	update      update
	tracking    rewardTracking
	why         why
	ofRollouts  []observer // of what was played, before the filter
	ofBatches   []observer // of what is trained on, between the critic's update and the actor's
	ofUpdates   []observer // of a step that is done
}

// New opens the run directory and loads or restores everything a step needs. Close it.
func New(ctx context.Context, c *config.Config, o session.Options) (*Trainer, error) {
	samplers, err := divide(ctx, c, &o)
	if err != nil {
		return nil, err
	}
	t := &Trainer{Training: session.NewTraining(c, o, c.Run.Steps), samplers: samplers}
	if err := t.begin(ctx); err != nil {
		t.rollouts.ahead.close()
		return nil, t.Abandon(err)
	}
	return t, nil
}

func (t *Trainer) begin(ctx context.Context) error {
	c := t.Config
	from, err := t.OpenDirectory(ctx)
	if err != nil || t.Finished {
		return err
	}
	if note := c.PresetNote(); note != "" {
		t.Log.Infof("%s", note)
	}
	if t.Options.Replay != "" {
		if t.rollouts.replay, err = openReplay(t.Options.Replay, c.Run.Steps); err != nil {
			return err
		}
	}
	actor, actorRate := session.PolicyOptimization(c.Actor, c.LoRA, c.Run.Steps)
	critic, criticRate := session.CriticOptimization(c.Critic, c.LoRA, c.Run.Steps)
	if err := t.OpenModels(ctx, from, TrainingParts(t.rollouts.replay != nil), actor, critic); err != nil {
		return err
	}
	if r := t.rollouts.replay; r != nil && len(r.numbers) == 1 && c.Run.Steps > 1 {
		t.Log.Infof("replay: %s holds the episodes of one step: each of the %d steps trains on all %d of them",
			r.path, c.Run.Steps, len(r.at(1)))
	}
	t.clock = session.NewClock(t.Session)
	t.rollouts.Rollouts, t.rollouts.clock = session.Rollouts{Session: t.Session, Dir: t.File("rollouts")}, t.clock
	t.rollouts.state = &t.State
	t.preparation = preparation{Session: t.Session, clock: t.clock, given: t.rollouts.replay != nil, exact: t.Exact}
	if err := t.openAhead(ctx, from); err != nil {
		return err
	}
	t.update = update{Session: t.Session, clock: t.clock, preparation: &t.preparation, actorRate: actorRate,
		criticRate: criticRate}
	if err := t.observe(); err != nil {
		return err
	}
	if c.Algorithm.EntropyTarget > 0 && t.State.Entropy == nil {
		t.State.Entropy = &schedule.EntropyControl{Coef: min(max(c.Algorithm.EntropyCoef, 0), c.Algorithm.EntropyMax)}
	}
	if c.Algorithm.EntropyTarget > 0 {
		t.preparation.entropy = t.State.Entropy
	}
	var note string
	if t.preparation.penalty, note = t.State.Penalty(c.Algorithm); note != "" {
		t.Log.Warnf("%s", note)
	}
	return nil
}

// Close ends what is under way and frees everything.
func (t *Trainer) Close() {
	t.rollouts.ahead.close()
	t.why.close()
	t.Training.Close()
}

// observe puts the observers of the configuration in front of the run's steps.
func (t *Trainer) observe() (err error) {
	c := t.Config
	if t.tracking, err = t.openTracking(); err != nil {
		return err
	}
	t.why = why{Session: t.Session, clock: t.clock, ledger: &t.State.Forecast}
	t.ofRollouts = []observer{{"", &t.tracking},
		{"collapse_metrics", &collapseObserver{t.Session, &t.State.Collapse}}}
	t.ofBatches = []observer{
		{"", &learnedObserver{t.Session, t.rollouts.Dir, t.rollouts.replay != nil}},
		{"gradient_analysis", &bucketObserver{t.Session, &t.rollouts, &t.preparation, t.File("analysis")}},
		{"grad_components", &componentObserver{Session: t.Session, given: t.rollouts.replay != nil,
			dir: t.File(componentFolder(c)), saves: true}},
		{"gradient_analysis", &beforeUpdate{&t.why}}}
	t.ofUpdates = []observer{{"", &t.why}}
	return nil
}

// Check opens what New opens, without weights and without touching the run's directory: what it refuses, New would
// refuse.
func Check(c *config.Config, o session.Options) (*experiment.Experiment, error) {
	if o.Replay != "" {
		if _, err := openReplay(o.Replay, c.Run.Steps); err != nil {
			return nil, err
		}
	}
	return session.NewTraining(c, o, c.Run.Steps).Check(TrainingParts(o.Replay != ""))
}

// TrainingParts are the parts of an experiment that reinforcement learning needs.
func TrainingParts(replay bool) experiment.Parts {
	return experiment.Parts{Learn: true, Critic: true, Reference: true, Analyse: true, Play: !replay}
}

// Run trains until the last step, an early stop, an interruption or a failure, and records in run.json how it ended.
func (t *Trainer) Run(ctx context.Context) (outcome session.Outcome, err error) {
	if t.Finished {
		return t.Outcome(), t.samplers.send(ctx, order{End: true})
	}
	defer func() {
		if stopped := new(interrupt.Error); err == nil || errors.As(err, &stopped) {
			err = errors.Join(err, t.samplers.send(ctx, order{End: true}))
		}
		outcome, err = t.Conclude(outcome, errors.Join(err, t.tracking.tracker.Close()))
	}()
	if err := t.Started(); err != nil {
		return outcome, err
	}
	stopping := interrupt.Graceful(ctx)
	if err := t.validateFirst(ctx); err != nil {
		return outcome, err
	}
	before, analysed := t.Actor.Optimizer.Steps(), t.Config.Analysis.Only
	defer func() {
		if err == nil && !analysed && t.Actor.Optimizer.Steps() == before {
			t.Log.Warnf("the policy is the one that the run began with: no step had anything to learn from")
		}
	}()
	for t.State.Step < t.Until {
		err := t.advance(ctx)
		analysed = analysed || errors.Is(err, errAnalysed)
		if ends(err) {
			errors.As(err, &outcome.Early)
			return outcome, t.Checkpoints.Proven(t.State)
		}
		if err != nil {
			return outcome, err
		}
		stop, err := t.Stopping(ctx, stopping)
		if err != nil {
			return outcome, err
		}
		if stop != nil {
			if err := t.save(ctx); err != nil {
				return outcome, err
			}
			if err := t.Checkpoints.Proven(t.State); err != nil {
				return outcome, err
			}
			t.Log.Infof("step %d is finished and saved; continue with --resume", t.State.Step)
			return outcome, stop
		}
	}
	return outcome, t.Checkpoints.Proven(t.State)
}

// validateFirst logs the policy as it is, as step 0.
func (t *Trainer) validateFirst(ctx context.Context) error {
	if t.State.Step > 0 || !t.Config.Run.ValidateFirst || t.rollouts.replay != nil {
		return nil
	}
	line, episodes, err := t.rollouts.Validation(ctx, 0, 0)
	if err != nil {
		return err
	}
	t.why.validated(0, episodes, line)
	t.Totals.Into(line)
	return t.Record(0, t.Config.Run.Steps, line)
}

// advance does one step with everything around it: validation, checkpoint, metrics. Its error may be an end of the run
// (see ends).
func (t *Trainer) advance(ctx context.Context) error {
	if problem := t.Machine.Measure(); problem != nil { // which takes memory that the run itself may not need
		t.Log.Warnf("shares of the machine's peak (perf/mfu, perf/mbu) are left out: %v", problem)
	}
	values, ended := t.step(ctx)
	if ended != nil && !ends(ended) {
		return fmt.Errorf("step %d: %w", t.State.Step+1, ended)
	}
	t.State.Step++
	step, c := t.State.Step, t.Config.Run
	skipped := ended != nil || values["rollout/empty_after_filter"] == 1.0
	last := step == t.Until
	due := !skipped && c.ValidateEvery > 0 && step%c.ValidateEvery == 0
	if t.rollouts.replay == nil && (due || last && ended == nil && c.ValidateEvery > 0) {
		m, episodes, err := t.rollouts.Validation(ctx, step, step)
		if err != nil {
			return fmt.Errorf("validation after step %d: %w", step, err)
		}
		maps.Copy(values, m)
		if due || step == t.Total { // that of a pause is not one of the run's
			t.why.validated(step, episodes, values)
		}
		if due { // the last one is no verdict on the training
			if early := t.State.EarlyStop.Validated(m.Floats(), t.Config.EarlyStop); early != nil {
				values[early.Metric], ended = 1.0, early
			}
		}
	}
	t.Totals.Into(values)
	if err := t.Record(step, c.Steps, values); err != nil {
		return err
	}
	// The metrics line comes first: a crash between the two leaves a line too many, which resuming drops, and never
	// one too few.
	if ended == nil && t.saveDue(step) {
		return t.save(ctx)
	}
	return ended
}

// saveDue reports whether a checkpoint is saved after a step.
func (t *Trainer) saveDue(step int) bool {
	every := t.Config.Run.SaveEvery
	pauses := step == t.Until && step < t.Total
	return pauses || every >= 0 && (step == t.Total || every > 0 && step%every == 0 || t.Checkpoints.Kept(step))
}

// save saves a checkpoint. What belongs to the steps before it is on the disk before it: a resumed run does not make
// that again.
func (t *Trainer) save(ctx context.Context) error {
	if err := t.tracking.tracker.Flush(); err != nil {
		return err
	}
	if err := t.rollouts.ahead.pause(ctx); err != nil { // the checkpoint holds what is under way
		return err
	}
	return t.Checkpoints.Save(ctx, t.State)
}
