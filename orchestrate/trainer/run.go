package trainer

import (
	"context"
	"errors"
	"fmt"

	"gyre/orchestrate/interrupt"
)

// errAnalysed ends a run after its gradient analysis (analysis.exit_after).
var errAnalysed = errors.New("the gradient analysis is done")

// Run trains until the last step, an early stop, an interruption or a failure, and records in run.json how it ended.
func (t *Trainer) Run(ctx context.Context) (outcome Outcome, err error) {
	defer func() { outcome, err = t.conclude(outcome, err) }()
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
			if err := t.saveCheckpoint(); err != nil {
				return outcome, err
			}
			t.log.Infof("step %d is finished and saved; continue with --resume", t.state.Step)
			return outcome, interrupt.Cause(ctx)
		default:
		}
	}
	return outcome, nil
}

// conclude fills the outcome and records in run.json how the run ended.
func (t *Trainer) conclude(outcome Outcome, err error) (Outcome, error) {
	outcome.Steps, outcome.Dir = t.state.Step, t.dir.Path
	status, reason := "done", ""
	var interrupted *interrupt.Error
	switch {
	case outcome.Early != nil:
		status, reason = "stopped_early", outcome.Early.Reason
	case errors.As(err, &interrupted):
		status, reason = "interrupted", interrupted.Error()
	case err != nil:
		status, reason = "failed", err.Error()
	}
	return outcome, errors.Join(err, t.componentFiles.Wait(), t.dir.WriteInfo(t.info(status, reason)))
}

// validateFirst logs the policy as it is, as step 0.
func (t *Trainer) validateFirst(ctx context.Context) error {
	if t.state.Step > 0 || !t.config.Run.ValidateFirst || t.replay != nil {
		return nil
	}
	m, err := t.validate(ctx, 0)
	if err != nil {
		return err
	}
	values := map[string]any{}
	record(values, m)
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
		m, err := t.validate(ctx, step)
		if err != nil {
			return nil, fmt.Errorf("validation after step %d: %w", step, err)
		}
		record(values, m)
		if early = t.state.EarlyStop.Validated(m, t.config.EarlyStop); early != nil {
			values[early.Metric] = 1.0
		}
	}
	if err := t.logger.Log(step, values); err != nil {
		return nil, fmt.Errorf("metrics of step %d: %w", step, err)
	}
	// The metrics line comes first: a crash between the two leaves a line too many, which resuming drops, and never one too few.
	if ended == nil && early == nil && c.SaveEvery >= 0 && (last || c.SaveEvery > 0 && step%c.SaveEvery == 0) {
		if err := t.saveCheckpoint(); err != nil {
			return nil, err
		}
	}
	t.console.Step(step, c.Steps, values)
	t.log.File(t.console.Line(step, c.Steps, values))
	return early, ended
}

// record adds numbers to a line of metrics, which may also hold tables.
func record(line map[string]any, numbers map[string]float64) {
	for name, v := range numbers {
		line[name] = v
	}
}
