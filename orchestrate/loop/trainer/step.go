package trainer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gyre/orchestrate/loop/collapse"
	"gyre/orchestrate/loop/gradients"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/source"
	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/spans"
)

// Step is one training step on its way: what observers look at.
type Step struct {
	Number       int
	source.Batch              // as it was played, before the filter
	Chosen       Prepared     // what the filter kept, with its columns filled; empty for observers of the rollout
	Line         metrics.Line // what is logged of the step

	tokens     int                        // trained on
	analysed   *analysed                  // what the gradient analysis found; nil where it was not due
	components *gradients.ComponentReport // the same of the reward's components
}

// Observer measures or records something about a step. It changes nothing that a later phase reads but the step's
// line, so a step without it gives the same weights.
type Observer interface {
	// Due reports whether a step is looked at. It depends on nothing but the step, so all ranks agree.
	Due(step int) bool
	// Look may return errAnalysed, which ends the run after its metrics are written.
	Look(ctx context.Context, s *Step) error
}

// observer is one of a run's, with the name that its time is logged under: "" logs none.
type observer struct {
	name string
	Observer
}

// errAnalysed ends a run after its gradient analysis (analysis.exit_after).
var errAnalysed = errors.New("the gradient analysis is done")

// ends reports whether an error ends a run that has not failed: a *collapse.StoppedEarly, or errAnalysed.
func ends(err error) bool {
	return errors.As(err, new(*collapse.StoppedEarly)) || errors.Is(err, errAnalysed)
}

// step runs one training step and returns its metrics, which are written also when its error ends the run.
func (t *Trainer) step(ctx context.Context) (metrics.Line, error) {
	s := &Step{Number: t.State.Step + 1, Line: metrics.Line{}}
	ctx, end := spans.Step(ctx, s.Number)
	t.clock.Begin(ctx)
	begin, traffic := time.Now(), session.Traffic(t.World)
	if took := t.Checkpoints.Took; took > 0 { // after the step before
		t.clock.Add("checkpoint", took)
		t.Checkpoints.Took = 0
	}
	ended := t.learn(ctx, s)
	end(ended)
	if ended != nil && !ends(ended) {
		return nil, ended
	}
	if err := t.source.Updated(s.Line); err != nil {
		return nil, err
	}
	took := time.Since(begin)
	t.clock.Finish(s.Line, took, t.Machine, s.tokens, s.tokens*t.Config.Actor.Epochs)
	traffic(s.Line, took)
	if err := session.OfAllRanks(ctx, t.World, s.Line); err != nil {
		return nil, err
	}
	return s.Line, ended
}

// learn goes through the phases of a step in RAGEN's order.
func (t *Trainer) learn(ctx context.Context, s *Step) (err error) {
	if s.Batch, err = t.source.Next(ctx, s.Number, s.Line); err != nil {
		return err
	}
	s.Line.Add(newEpisodeMetrics(s.Episodes))
	if len(s.Episodes) == 0 {
		t.Log.Warnf("step %d: no episode was played to its end, see the failures above; the step is skipped", s.Number)
		s.Line.Add(selectionMetrics{Attempts: 1, Empty: true, EmptyInARow: t.State.EarlyStop.Empty})
		return nil
	}
	if err := t.look(ctx, t.ofRollouts, s); err != nil {
		return err
	}
	if s.Chosen.Selection, err = t.preparation.choose(ctx, s.Filling(), false); err != nil {
		return err
	}
	if learns, err := t.judge(s); err != nil || !learns {
		return err
	}
	batch, only := s.Chosen.Batch, t.Config.Analysis.Only
	if batch.Len() > 0 {
		if s.Chosen, err = t.preparation.prepare(ctx, s.Chosen.Selection, s.Provenance, s.Number, s.Line); err != nil {
			return err
		}
		t.preparation.penalty.Update(s.Chosen.divergence, batch.Len())
		if t.Critic != nil && !only {
			if err := t.update.critic(ctx, s); err != nil {
				return err
			}
		}
	}
	if s.Number > t.Config.Critic.Warmup || t.Critic == nil {
		if err := t.look(ctx, t.ofBatches, s); err != nil {
			return err
		}
		if !only {
			if err := t.update.actor(ctx, s); err != nil {
				return err
			}
			t.judgeSampler(s)
		}
		if err := t.look(ctx, t.ofUpdates, s); err != nil {
			return err
		}
	}
	if only {
		s.Line.Add(analysisOnly{1, 1, 1})
	}
	for _, x := range batch.Sequences {
		s.tokens += len(x.IDs)
	}
	s.Line.Add(batchMetrics{batch.Len(), len(train.MiniBatches(batch.Len(), t.Config.Actor.MiniBatch)), s.tokens})
	return t.noteSoundness(s)
}

// look shows a step to the observers that are due.
func (t *Trainer) look(ctx context.Context, observers []observer, s *Step) error {
	for _, o := range observers {
		if !o.Due(s.Number) {
			continue
		}
		end := t.clock.Phase(o.name)
		err := o.Look(ctx, s)
		if end(&err); err != nil {
			return err
		}
	}
	return nil
}

// judge records what the filter did and applies the rules that stop a collapsed run. It reports whether the step has
// anything to learn from, or to analyse.
func (t *Trainer) judge(s *Step) (learns bool, err error) {
	empty, rules, found := s.Chosen.Batch.Len() == 0, t.Config.EarlyStop, s.Chosen.Metrics
	if empty || s.Number == 1 {
		for _, cause := range collapse.Void(s.Episodes, t.Config) {
			t.Log.Warnf("step %d: %s", s.Number, cause)
		}
	}
	stop := t.State.EarlyStop.Selected(empty, rules)
	s.Line.Add(selectionMetrics{&found, 1, empty, t.State.EarlyStop.Empty})
	if since := t.State.Unsound; stop != nil && since > 0 {
		return false, &session.Divergence{What: fmt.Sprintf("the gradients of step %d were not finite, and now %s",
			since, stop.Reason)}
	}
	if stop == nil && !empty {
		stop = t.State.EarlyStop.RewardStd(found.Means["in_group_reward"].Std, rules)
	}
	if stop != nil {
		s.Line[stop.Metric] = 1.0
		return false, stop
	}
	if empty && !t.Config.Analysis.Only {
		t.Log.Warnf("step %d: the filter kept no group; the step is skipped", s.Number)
		return false, nil
	}
	return true, nil
}

// judgeSampler withdraws the proof that the sampler's log-probs are the trainer's when an update has measured a gap
// between them.
func (t *Trainer) judgeSampler(s *Step) {
	if s.Given {
		return
	}
	gap := 0.0
	if s.Chosen.gap != nil {
		gap = *s.Chosen.gap
	}
	s.Line.Add(scoreMetrics{Equal: new(t.Exact && gap == 0)})
	if !t.Exact || gap == 0 {
		return
	}
	t.Exact, t.State.SamplerGap = false, gap
	t.Log.Warnf("step %d: the sampler's log-probs differ by up to %.2g from the trainer's, though the self-test found "+
		"none: from now on old log-probs are recomputed every step (please report the processor)", s.Number, gap)
}

// noteSoundness remembers since when gradients are not finite, and which checkpoint is from before that.
func (t *Trainer) noteSoundness(s *Step) error {
	if s.Chosen.Batch.Len() == 0 {
		return nil
	}
	_, actor := s.Line["actor/skipped_steps"]
	_, critic := s.Line["critic/skipped_steps"]
	switch state := &t.State; {
	case !actor && !critic:
		state.Unsound, state.Sound = 0, 0
		return t.Checkpoints.Proven(*state)
	case state.Unsound == 0:
		state.Unsound, state.Sound = s.Number, max(t.Checkpoints.Saved, 0)
	}
	return nil
}
