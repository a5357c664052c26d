package trainer

import (
	"context"
	"errors"
	"fmt"

	"gyre/orchestrate/advantage"
	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/interrupt"
)

// Trainer is one run of reinforcement learning. Each phase of its steps has a type of its own, with the state that belongs to it.
type Trainer struct {
	run
	rollouts    rollouts
	preparation preparation
	update      update
	analysis    gradientAnalysis
	components  componentGradients
	tracking    rewardTracking
}

// New opens the run directory and loads or restores everything a step needs. Close it.
func New(c *config.Config, o Options) (*Trainer, error) {
	t := &Trainer{run: newRun(c, o)}
	if err := t.begin(); err != nil {
		return nil, t.abandon(err)
	}
	return t, nil
}

func (t *Trainer) begin() error {
	c := t.config
	from, err := t.openDirectory()
	if err != nil {
		return err
	}
	if t.options.Replay != "" {
		if t.replay, err = openReplay(t.options.Replay, c.Run.Steps); err != nil {
			return err
		}
	}
	actor, err := policyLearning(c.Actor, t.optimizerSteps(c.Actor.MiniBatch, c.Actor.Epochs))
	if err != nil {
		return err
	}
	critic, err := criticLearning(c.Critic, t.optimizerSteps(c.Critic.MiniBatch, c.Critic.Epochs))
	if err != nil {
		return err
	}
	if err := t.openModels(from, TrainingParts(t.replay != nil), actor, critic); err != nil {
		return err
	}
	t.rollouts = rollouts{t.equipment, t.dir.File("rollouts")}
	t.preparation = preparation{equipment: t.equipment, exact: t.exact}
	t.update = update{t.equipment}
	t.analysis = gradientAnalysis{t.equipment, &t.rollouts, &t.preparation, t.dir.File("analysis"), nil}
	t.components = componentGradients{equipment: t.equipment, dir: t.dir.File(componentFolder(c))}
	if t.tracking, err = t.openTracking(); err != nil {
		return err
	}
	a := c.Algorithm
	if from == "" {
		t.state.KL = advantage.Controller{Coef: a.KLCoef}
	}
	if a.KLIn == "reward" {
		t.preparation.penalty = &t.state.KL
		if a.KLControl == "adaptive" {
			t.state.KL.Target, t.state.KL.Horizon = a.KLTarget, a.KLHorizon
		}
	}
	return nil
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

// errAnalysed ends a run after its gradient analysis (analysis.exit_after).
var errAnalysed = errors.New("the gradient analysis is done")

// Run trains until the last step, an early stop, an interruption or a failure, and records in run.json how it ended.
func (t *Trainer) Run(ctx context.Context) (outcome Outcome, err error) {
	defer func() {
		outcome, err = t.conclude(outcome, errors.Join(err, t.components.files.Wait(), t.tracking.close()))
	}()
	if err := t.dir.WriteInfo(t.info("running", "")); err != nil {
		return outcome, err
	}
	stopping := interrupt.Graceful(ctx)
	if t.state.Step >= t.config.Run.Steps {
		t.log.Infof("the run already has its %d steps; raise run.steps to continue it", t.state.Step)
		return outcome, nil
	}
	if err := t.validateFirst(ctx); err != nil {
		return outcome, err
	}
	for t.state.Step < t.config.Run.Steps {
		early, err := t.advance(ctx)
		if early != nil {
			outcome.Early = early
			return outcome, nil
		}
		if errors.Is(err, errAnalysed) {
			return outcome, nil
		}
		if err != nil {
			return outcome, err
		}
		select {
		case <-stopping:
			if err := t.save(); err != nil {
				return outcome, err
			}
			t.log.Infof("step %d is finished and saved; continue with --resume", t.state.Step)
			return outcome, interrupt.Cause(ctx)
		default:
		}
	}
	return outcome, nil
}

// validateFirst logs the policy as it is, as step 0.
func (t *Trainer) validateFirst(ctx context.Context) error {
	if t.state.Step > 0 || !t.config.Run.ValidateFirst || t.replay != nil {
		return nil
	}
	m, err := t.rollouts.validation(ctx, 0)
	if err != nil {
		return err
	}
	values := map[string]any{}
	record(values, m)
	t.totals.into(values)
	if err := t.logger.Log(0, values); err != nil {
		return err
	}
	t.console.Step(0, t.config.Run.Steps, values)
	return nil
}

// advance does one step with everything around it: validation, checkpoint, metrics.
func (t *Trainer) advance(ctx context.Context) (*StoppedEarly, error) {
	values, err := t.step(ctx)
	var early *StoppedEarly
	if err != nil && !errors.As(err, &early) && !errors.Is(err, errAnalysed) {
		return nil, fmt.Errorf("step %d: %w", t.state.Step+1, err)
	}
	ended := err
	t.state.Step++
	step, c := t.state.Step, t.config.Run
	skipped := ended != nil || values["rollout/empty_after_filter"] == 1.0
	last := step == c.Steps
	if t.replay == nil && !skipped && c.ValidateEvery > 0 && step%c.ValidateEvery == 0 {
		m, err := t.rollouts.validation(ctx, step)
		if err != nil {
			return nil, fmt.Errorf("validation after step %d: %w", step, err)
		}
		record(values, m)
		if early = t.state.EarlyStop.Validated(m, t.config.EarlyStop); early != nil {
			values[early.Metric] = 1.0
		}
	}
	t.totals.into(values)
	if err := t.logger.Log(step, values); err != nil {
		return nil, fmt.Errorf("metrics of step %d: %w", step, err)
	}
	// The metrics line comes first: a crash between the two leaves a line too many, which resuming drops, and never one too few.
	if ended == nil && early == nil && c.SaveEvery >= 0 && (last || c.SaveEvery > 0 && step%c.SaveEvery == 0) {
		if err := t.save(); err != nil {
			return nil, err
		}
	}
	t.console.Step(step, c.Steps, values)
	t.log.File(t.console.Line(step, c.Steps, values))
	return early, ended
}

// save saves a checkpoint. What belongs to the steps before it is on the disk before it: a resumed run does not make that again.
func (t *Trainer) save() error {
	if err := t.components.files.Wait(); err != nil {
		return err
	}
	if err := t.tracking.flush(); err != nil {
		return err
	}
	return t.checkpoints.save(t.state)
}
