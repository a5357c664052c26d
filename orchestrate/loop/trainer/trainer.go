// Package trainer runs reinforcement learning: the training step in RAGEN's order, what measures it, validation and
// early stopping; and the probe of one checkpoint (gyre analyze).
//
//	play ─▶ observe ─▶ select ─▶ score ─▶ advantages ─▶ critic ─▶ observe ─▶ actor        (step.go, learn)
//	                                                                           │
//	metrics.jsonl, rollouts/step_N.jsonl ◀── checkpoint ◀── validation ◀───────┘           (trainer.go, advance)
//
// Package source gives a step its episodes and says where they come from; select.go filters them; prepare.go has the
// models fill the columns of their batch; advantages.go turns rewards into advantages; update.go fits critic and actor.
// Observers (observers.go, buckets.go, components.go, why.go) measure and record: a step without them gives the same
// weights. Directory, models, checkpoints and resuming are package session's, arithmetic over ranks is package train's.
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
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/source"
	"gyre/orchestrate/loop/tracking"
	"gyre/orchestrate/run/interrupt"
)

// Trainer is one run of reinforcement learning. Each phase of its steps has a type of its own, with the state that
// belongs to it.
type Trainer struct {
	*session.Training
	source      source.Source // nil until the models are there
	samplers    *source.Samplers
	clock       *session.Clock
	rollouts    *session.Rollouts
	preparation preparation
	update      update
	tracker     *tracking.Tracker // nil when nothing is recorded
	why         why
	validation  struct { // of a run that has environments to play; the zero value validates never
		first bool // before the first step
		every int  // steps
	}
	ofRollouts []observer // of what was played, before the filter
	ofBatches  []observer // of what is trained on, between the critic's update and the actor's
	ofUpdates  []observer // of a step that is done
}

// New opens the run directory and loads or restores everything a step needs. Close it.
func New(ctx context.Context, c *config.Config, o session.Options) (*Trainer, error) {
	t := &Trainer{Training: session.NewTraining(c, o, c.Run.Steps)}
	var err error
	if t.samplers, err = source.Divide(ctx, t.Session); err != nil {
		return nil, err
	}
	if err := t.begin(ctx); err != nil {
		return nil, errors.Join(t.Abandon(err), t.closeSource())
	}
	return t, nil
}

func (t *Trainer) begin(ctx context.Context) error {
	from, err := t.OpenDirectory(ctx)
	if err != nil || t.Finished {
		return err
	}
	c := t.Config // with the type of the arithmetic
	if note := c.PresetNote(); note != "" {
		t.Log.Infof("%s", note)
	}
	plan, err := source.NewPlan(c, t.Options)
	if err != nil {
		return err
	}
	actor, actorRate := session.PolicyOptimization(c, c.Run.Steps)
	critic, criticRate := session.CriticOptimization(c, c.Run.Steps)
	if err := t.OpenModels(ctx, from, plan.Parts(), actor, critic); err != nil {
		return err
	}
	t.clock = session.NewClock(t.Session)
	t.rollouts = &session.Rollouts{Session: t.Session, Dir: t.File("rollouts")}
	if t.source, err = plan.Open(ctx, source.Run{Training: t.Training, Rollouts: t.rollouts, Clock: t.clock,
		Samplers: t.samplers, From: from}); err != nil {
		return err
	}
	t.preparation = preparation{Session: t.Session, clock: t.clock}
	t.update = update{Session: t.Session, clock: t.clock, preparation: &t.preparation, actorRate: actorRate,
		criticRate: criticRate}
	if err := t.observe(); err != nil {
		return err
	}
	var note string
	if t.preparation.penalty, note = t.State.Penalty(c.Algorithm); note != "" {
		t.Log.Warnf("%s", note)
	}
	return nil
}

// Close ends what is under way and frees everything.
func (t *Trainer) Close() {
	t.closeSource() // what does not close harms nobody any more
	t.why.close()
	t.Training.Close()
}

func (t *Trainer) closeSource() error {
	if t.source == nil {
		return nil
	}
	return t.source.Close()
}

// observe puts the observers of the configuration in front of the run's steps.
func (t *Trainer) observe() (err error) {
	c := t.Config
	if err := t.LinkFolders(); err != nil {
		return err
	}
	t.why = why{Session: t.Session, clock: t.clock, ledger: &t.State.Forecast}
	if t.Sampler != nil { // of given episodes this was recorded when they were played
		if t.tracker, err = t.openTracker(); err != nil {
			return err
		}
		t.validation.first, t.validation.every = c.Run.ValidateFirst, c.Run.ValidateEvery
		t.ofRollouts = []observer{{"", &rewardObserver{t.Session, t.tracker}},
			{"collapse_metrics", &collapseObserver{t.Session, &t.State.Collapse}}}
		t.ofBatches = []observer{{"", &learnedObserver{t.Session, t.rollouts.Dir}}}
	}
	if t.Sampler == nil && c.Analysis.Enabled && c.Separate() {
		t.Log.Warnf("no gradient analysis: with --replay nothing plays its separate batch (analysis.groups, " +
			"analysis.group_size)")
	} else {
		t.ofBatches = append(t.ofBatches, observer{"gradient_analysis", &bucketObserver{t.Session, t.rollouts,
			&t.preparation, &t.Exact, t.File("analysis")}})
	}
	t.ofBatches = append(t.ofBatches,
		observer{"grad_components", &componentObserver{Session: t.Session, dir: t.File(session.GradientFolder(c)), saves: true}},
		observer{"gradient_analysis", &beforeUpdate{&t.why}})
	t.ofUpdates = []observer{{"", &t.why}}
	return nil
}

// Check opens what New opens, without weights and without touching the run's directory: what it refuses, New would
// refuse.
func Check(c *config.Config, o session.Options) (*experiment.Experiment, error) {
	plan, err := source.NewPlan(c, o)
	if err != nil {
		return nil, err
	}
	return session.NewTraining(c, o, c.Run.Steps).Check(plan.Parts())
}

// Run trains until the last step, an early stop, an interruption or a failure, and records in run.json how it ended.
func (t *Trainer) Run(ctx context.Context) (outcome session.Outcome, err error) {
	if t.Finished {
		return t.Outcome(), t.samplers.End(ctx)
	}
	defer func() {
		if stopped := new(interrupt.Error); err == nil || errors.As(err, &stopped) {
			err = errors.Join(err, t.samplers.End(ctx))
		}
		outcome, err = t.Conclude(outcome, errors.Join(err, t.tracker.Flush()))
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
	if t.State.Step > 0 || !t.validation.first {
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
	validates := t.validation.every > 0
	due := validates && !skipped && step%t.validation.every == 0
	if due || validates && last && ended == nil {
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
	if err := t.tracker.Flush(); err != nil {
		return err
	}
	write, err := t.source.UnderWay(ctx)
	if err != nil {
		return err
	}
	t.Checkpoints.More = write
	return t.Checkpoints.Save(ctx, t.State)
}
