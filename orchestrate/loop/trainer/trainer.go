package trainer

import (
	"context"
	"errors"
	"fmt"

	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/run/interrupt"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
)

// Trainer is one run of reinforcement learning. Each phase of its steps has a type of its own, with the state that belongs to it.
type Trainer struct {
	run
	clock       *clock
	rollouts    rollouts
	preparation preparation
	update      update
	components  componentObserver
	tracking    rewardTracking
	ofRollouts  []observer // of what was played, before the filter
	ofBatches   []observer // of what is trained on, between the critic's update and the actor's
}

// New opens the run directory and loads or restores everything a step needs. Close it.
func New(ctx context.Context, c *config.Config, o Options) (*Trainer, error) {
	t := &Trainer{run: newRun(c, o, c.Run.Steps)}
	if err := t.begin(ctx); err != nil {
		return nil, t.abandon(err)
	}
	return t, nil
}

func (t *Trainer) begin(ctx context.Context) error {
	c := t.config
	from, err := t.openDirectory(ctx)
	if err != nil || t.finished {
		return err
	}
	if t.options.Replay != "" {
		if t.replay, err = openReplay(t.options.Replay, c.Run.Steps); err != nil {
			return err
		}
	}
	actor, actorRate, err := policyOptimization(c.Actor, t.optimizerSteps(c.Actor.MiniBatch, c.Actor.Epochs))
	if err != nil {
		return err
	}
	critic, criticRate, err := criticOptimization(c.Critic, t.optimizerSteps(c.Critic.MiniBatch, c.Critic.Epochs))
	if err != nil {
		return err
	}
	if err := t.openModels(ctx, from, TrainingParts(t.replay != nil), actor, critic); err != nil {
		return err
	}
	t.clock = newClock(t.equipment)
	t.rollouts = rollouts{equipment: t.equipment, clock: t.clock, dir: t.file("rollouts")}
	t.preparation = preparation{equipment: t.equipment, clock: t.clock, exact: t.exact}
	t.update = update{equipment: t.equipment, clock: t.clock, actorRate: actorRate, criticRate: criticRate, watch: t.watchShares()}
	if err := t.observe(); err != nil {
		return err
	}
	var note string
	if t.preparation.penalty, note = t.state.penalty(c.Algorithm); note != "" {
		t.log.Warnf("%s", note)
	}
	return nil
}

// observe puts the observers of the configuration in front of the run's steps.
func (t *Trainer) observe() (err error) {
	c := t.config
	if t.tracking, err = t.openTracking(); err != nil {
		return err
	}
	t.components = componentObserver{equipment: t.equipment, dir: t.file(componentFolder(c)), saves: true}
	buckets := &bucketObserver{t.equipment, &t.rollouts, &t.preparation, t.file("analysis")}
	t.ofRollouts = []observer{{"", lengths{}}, {"", &t.tracking}, {"collapse_metrics", &collapseObserver{t.equipment, &t.state.Collapse}}}
	t.ofBatches = []observer{{"gradient_analysis", buckets}, {"grad_components", &t.components}}
	return nil
}

// Check opens what New opens, without weights and without touching the run's directory: what it refuses, New would refuse.
func Check(c *config.Config, o Options) (*experiment.Experiment, error) {
	if o.Replay != "" {
		if _, err := openReplay(o.Replay, c.Run.Steps); err != nil {
			return nil, err
		}
	}
	t := newRun(c, o, c.Run.Steps)
	return t.check(TrainingParts(o.Replay != ""))
}

// CheckSFT is Check for a supervised run.
func CheckSFT(c *config.Config, o Options) (*experiment.Experiment, error) {
	t := SFT{run: newRun(c, o, c.SFT.Epochs)}
	if c.SFT.Data != "" {
		if _, err := readDemonstrations(c.SFT); err != nil {
			return nil, err
		}
	}
	return t.check(experiment.Parts{Learn: true, Play: c.SFT.Data == "" || t.validates()})
}

// check opens what the run would open, without weights, and makes nothing.
func (t *run) check(parts experiment.Parts) (*experiment.Experiment, error) {
	if err := rundir.Check(t.checkpoints.dir, t.options.Resume); err != nil {
		return nil, err
	}
	from, err := t.checkpoints.find(t.options)
	if err == nil {
		err = t.settle(context.Background(), from) // one process
	}
	if err != nil {
		return nil, err
	}
	resolved, err := config.Resolved(t.config)
	if err == nil {
		err = t.continueFrom(from, resolved)
	}
	if err == nil {
		_, err = experiment.OpenMachine(t.config.Run.Threads, experiment.Placement(t.config), t.log.Warnf)
	}
	if err != nil {
		return nil, err
	}
	return experiment.Open(t.config, parts.Continue(from))
}

// TrainingParts are the parts of an experiment that reinforcement learning needs.
func TrainingParts(replay bool) experiment.Parts {
	return experiment.Parts{Learn: true, Critic: true, Reference: true, Analyse: true, Play: !replay}
}

// optimizerSteps estimates how many optimizer steps the whole run takes, for schedules that decay: exact unless the filter drops groups.
func (t *Trainer) optimizerSteps(miniBatch, epochs int) int {
	perStep := func(episodes int) int { return epochs * max((episodes+miniBatch-1)/miniBatch, 1) }
	if t.replay != nil {
		total := 0
		for step := range t.config.Run.Steps {
			total += perStep(len(t.replay.at(step + 1)))
		}
		return total
	}
	return t.config.Run.Steps * perStep(t.config.Episodes())
}

// Run trains until the last step, an early stop, an interruption or a failure, and records in run.json how it ended.
func (t *Trainer) Run(ctx context.Context) (outcome Outcome, err error) {
	if t.finished {
		return t.outcome(), nil
	}
	defer func() {
		outcome, err = t.conclude(outcome, errors.Join(err, t.components.files.Wait(), t.tracking.close()))
	}()
	if err := t.started(); err != nil {
		return outcome, err
	}
	stopping := interrupt.Graceful(ctx)
	if err := t.validateFirst(ctx); err != nil {
		return outcome, err
	}
	before := t.actor.Optimizer.Steps()
	defer func() {
		if err == nil && !t.config.Analysis.Only && t.actor.Optimizer.Steps() == before {
			t.log.Warnf("the policy is the one that the run began with: no step had anything to learn from")
		}
	}()
	for t.state.Step < t.until {
		early, err := t.advance(ctx)
		if outcome.Early = early; early != nil || errors.Is(err, errAnalysed) {
			return outcome, t.checkpoints.proven(t.state)
		}
		if err != nil {
			return outcome, err
		}
		stop, err := t.stopping(ctx, stopping)
		if err != nil {
			return outcome, err
		}
		if stop != nil {
			if err := t.save(ctx); err != nil {
				return outcome, err
			}
			if err := t.checkpoints.proven(t.state); err != nil {
				return outcome, err
			}
			t.log.Infof("step %d is finished and saved; continue with --resume", t.state.Step)
			return outcome, stop
		}
	}
	return outcome, t.checkpoints.proven(t.state)
}

// validateFirst logs the policy as it is, as step 0.
func (t *Trainer) validateFirst(ctx context.Context) error {
	if t.state.Step > 0 || !t.config.Run.ValidateFirst || t.replay != nil {
		return nil
	}
	m, err := t.rollouts.validation(ctx, 0, 0)
	if err != nil {
		return err
	}
	values := metrics.Line{}
	values.Copy(m)
	t.totals.into(values)
	if err := t.logger.Log(0, values); err != nil {
		return err
	}
	t.console.Step(0, t.config.Run.Steps, values)
	return nil
}

// advance does one step with everything around it: validation, checkpoint, metrics.
func (t *Trainer) advance(ctx context.Context) (*StoppedEarly, error) {
	if problem := t.machine.Measure(); problem != nil { // which takes memory that the run itself may not need
		t.log.Warnf("shares of the machine's peak (perf/mfu, perf/mbu) are left out: %v", problem)
	}
	values, err := t.step(ctx)
	var early *StoppedEarly
	if err != nil && !errors.As(err, &early) && !errors.Is(err, errAnalysed) {
		return nil, fmt.Errorf("step %d: %w", t.state.Step+1, err)
	}
	ended := err
	t.state.Step++
	step, c := t.state.Step, t.config.Run
	skipped := ended != nil || values["rollout/empty_after_filter"] == 1.0
	last := step == t.until
	due := !skipped && c.ValidateEvery > 0 && step%c.ValidateEvery == 0
	if t.replay == nil && (due || last && ended == nil && c.ValidateEvery > 0) {
		m, err := t.rollouts.validation(ctx, step, step)
		if err != nil {
			return nil, fmt.Errorf("validation after step %d: %w", step, err)
		}
		values.Copy(m)
		if due { // the last one is no verdict on the training
			early = t.state.EarlyStop.Validated(m, t.config.EarlyStop)
		}
		if early != nil {
			values[early.Metric] = 1.0
		}
	}
	t.totals.into(values)
	if err := t.logger.Log(step, values); err != nil {
		return nil, fmt.Errorf("metrics of step %d: %w", step, err)
	}
	// The metrics line comes first: a crash between the two leaves a line too many, which resuming drops, and never one too few.
	if ended == nil && early == nil && t.saveDue(step) {
		if err := t.save(ctx); err != nil {
			return nil, err
		}
	}
	t.console.Step(step, c.Steps, values)
	t.log.File(t.console.Line(step, c.Steps, values))
	return early, ended
}

// saveDue reports whether a checkpoint is saved after a step.
func (t *Trainer) saveDue(step int) bool {
	every := t.config.Run.SaveEvery
	pauses := step == t.until && step < t.total
	return pauses || every >= 0 && (step == t.total || every > 0 && step%every == 0 || t.checkpoints.kept(step))
}

// save saves a checkpoint. What belongs to the steps before it is on the disk before it: a resumed run does not make that again.
func (t *Trainer) save(ctx context.Context) error {
	if err := t.components.files.Wait(); err != nil {
		return err
	}
	if err := t.tracking.flush(); err != nil {
		return err
	}
	return t.checkpoints.save(ctx, t.state)
}
