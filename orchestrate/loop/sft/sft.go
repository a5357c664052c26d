// Package sft is supervised fine-tuning: cross-entropy on the policy-owned tokens of expert episodes that were built
// with exactly the prompts the agent loop uses.
package sft

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"time"

	"gyre/internal/atomicfile"
	"gyre/internal/statistics"
	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/schedule"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/run/interrupt"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
	"gyre/torch"
)

// Trainer is a run of supervised fine-tuning. A step of the run is an epoch, one of its metrics an optimizer step.
// There is no critic and no reference.
type Trainer struct {
	*session.Training
	rollouts session.Rollouts
	rate     schedule.Schedule
	data     []*episode.Episode // demonstrations that were given (sft.data)
}

// New opens the run directory and loads or restores what the epochs need. Close it.
func New(ctx context.Context, c *config.Config, o session.Options) (*Trainer, error) {
	t := &Trainer{Training: session.NewTraining(c, o, c.SFT.Epochs)}
	t.Sparse = true
	if err := t.begin(ctx); err != nil {
		return nil, t.Abandon(err)
	}
	return t, nil
}

// Check opens what New opens, without weights and without touching the run's directory.
func Check(c *config.Config, o session.Options) (*experiment.Experiment, error) {
	t := &Trainer{Training: session.NewTraining(c, o, c.SFT.Epochs)}
	if c.SFT.Data != "" {
		if _, err := readDemonstrations(c.SFT); err != nil {
			return nil, err
		}
	}
	return t.Training.Check(t.parts())
}

// parts are what the run needs of an experiment: a sampler only to validate.
func (t *Trainer) parts() experiment.Parts {
	return experiment.Parts{Learn: true, Show: t.Config.SFT.Data == "", Play: t.validates()}
}

func (t *Trainer) begin(ctx context.Context) error {
	c, s := t.Config, t.Config.SFT
	from, err := t.OpenDirectory(ctx)
	if err != nil || t.Finished {
		return err
	}
	episodes := s.Episodes
	if s.Data != "" {
		if t.data, err = readDemonstrations(s); err != nil {
			return err
		}
		episodes = len(t.data) - s.ValidationEpisodes
	}
	how := *c // with [actor] for what is not in [sft]: betas, eps, weight decay, clipping
	how.Actor.LR, how.Actor.Schedule = s.LR, s.Schedule
	how.Actor.MinLRRatio, how.Actor.WarmupSteps = s.MinLRRatio, s.WarmupSteps
	learning, rate := session.PolicyOptimization(&how, s.Epochs*max((episodes+s.Batch-1)/s.Batch, 1))
	t.rate, t.rollouts = rate, session.Rollouts{Session: t.Session, Dir: t.File("rollouts")}
	return t.OpenModels(ctx, from, t.parts(), learning, nil)
}

// Run trains until the last epoch, an interruption or a failure, and validates the best epoch by the loss on held-out
// demonstrations. Metrics have ten lines per epoch; checkpoints follow run.save_every, counted in epochs, and the
// best epoch and the last are always saved.
func (t *Trainer) Run(ctx context.Context) (outcome session.Outcome, err error) {
	if t.Finished {
		return t.Outcome(), nil
	}
	defer func() { outcome, err = t.Conclude(outcome, err) }()
	if err := t.Started(); err != nil {
		return outcome, err
	}
	s := t.Config.SFT
	learnt, held, err := t.demonstrations(ctx)
	if err != nil {
		return outcome, err
	}
	stopping := interrupt.Graceful(ctx)
	for epoch := t.State.Step + 1; epoch <= s.Epochs; epoch++ {
		line, err := t.epoch(ctx, learnt, epoch)
		if err == nil && held.Len() > 0 {
			err = t.judge(ctx, line, held, epoch)
		}
		if err != nil {
			return outcome, fmt.Errorf("epoch %d: %w", epoch, err)
		}
		t.State.Step, t.State.ActorSteps = epoch, t.Actor.Optimizer.Steps()
		if epoch == s.Epochs {
			return outcome, t.end(ctx, line, learnt.Len())
		}
		if err := t.write(line, learnt.Len()); err != nil {
			return outcome, err
		}
		stop, err := t.Stopping(ctx, stopping)
		if err != nil {
			return outcome, err
		}
		if every := t.Config.Run.SaveEvery; stop != nil || epoch == t.State.BestEpoch || every > 0 && epoch%every == 0 {
			if err := t.save(ctx); err != nil {
				return outcome, err
			}
		}
		if stop != nil {
			t.Log.Infof("epoch %d is finished and saved; continue with --resume", epoch)
			return outcome, stop
		}
	}
	return outcome, nil
}

// judge measures the loss on held-out demonstrations, by which the best epoch is chosen.
func (t *Trainer) judge(ctx context.Context, line *sftLine, held *train.Batch, epoch int) error {
	logprobs, err := t.Actor.Compute(ctx, held, train.What{Temperature: 1}) // without a gradient
	if err != nil {
		return err
	}
	loss := -held.SampledMean(logprobs)
	if t.State.BestEpoch == 0 || loss < t.State.BestLoss {
		t.State.BestEpoch, t.State.BestLoss = epoch, loss
	}
	line.HeldOut = &heldOut{loss, t.State.BestLoss, t.State.BestEpoch}
	return nil
}

func (t *Trainer) save(ctx context.Context) error {
	if err := t.Checkpoints.Save(ctx, t.State); err != nil {
		return err
	}
	return t.Checkpoints.Proven(t.State)
}

// end validates the best epoch, saves what is not saved yet, and names the checkpoint to start from: best in the
// run's directory.
func (t *Trainer) end(ctx context.Context, line *sftLine, samples int) error {
	best, last := t.State.BestEpoch, t.State.Step
	if best == 0 {
		best = last
	}
	folder := fmt.Sprintf("%s%d", rundir.CheckpointPrefix, best)
	pending, err := t.Checkpoints.Write(ctx,
		t.State) // before the best epoch's weights take the place of the last one's
	if err != nil {
		return err
	}
	if t.validates() {
		if best != last {
			err = t.Actor.Trains.Reload(t.Actor.Model, filepath.Join(t.Checkpoints.Dir, folder, "actor"))
		}
		var found metrics.Line
		if err == nil {
			found, _, err = t.rollouts.Validation(ctx, last, int(t.State.ActorSteps))
		}
		if err != nil {
			return errors.Join(err, pending.Discard())
		}
		maps.Copy(line.others, found)
	}
	// The metrics line comes before the checkpoint, as after every step.
	if err := t.write(line, samples); err != nil {
		return errors.Join(err, pending.Discard())
	}
	if err := t.Checkpoints.Commit(ctx, pending, t.State); err != nil {
		return err
	}
	if err := t.Checkpoints.Proven(t.State); err != nil {
		return err
	}
	if !t.World.Writes() {
		return nil
	}
	if err := atomicfile.Symlink(folder, t.Dir.File("best")); err != nil {
		return err
	}
	note := ""
	if t.State.BestEpoch > 0 {
		note = fmt.Sprintf(" has the lowest loss on held-out demonstrations (%.4g)", t.State.BestLoss)
	}
	t.Log.Infof("epoch %d%s: start from it with model.path=%s", best, note, t.Dir.File("best", "actor"))
	return nil
}

// sftLine is one line of metrics: what the optimizer steps since the line before were like.
type sftLine struct {
	Metrics
	others                    metrics.Line
	begin                     time.Time
	losses, tokens, norms, of float64 // sums, and the number of optimizer steps
}

// Metrics are those of supervised fine-tuning.
type Metrics struct {
	Loss     *float64 `metric:"train/loss" unit:"nats" doc:"mean cross-entropy per token of the expert's replies since the line before"`
	GradNorm *float64 `metric:"train/grad_norm" doc:"mean norm of the gradient before clipping"`
	Rate     *float64 `metric:"train/lr" doc:"learning rate of the last optimizer step"`
	Epoch    float64  `metric:"train/epoch" doc:"epochs done"`
	Seconds  float64  `metric:"timing_s/step" unit:"s" doc:"since the line before"`
	HeldOut  *heldOut `metric:"val"`
}

type heldOut struct {
	Loss      float64 `metric:"loss" unit:"nats" doc:"mean cross-entropy per token of held-out demonstrations, at the end of an epoch"`
	BestLoss  float64 `metric:"best_loss" unit:"nats" doc:"the lowest so far"`
	BestEpoch int     `metric:"best_epoch" doc:"the epoch that had it"`
}

func newSFTLine() *sftLine { return &sftLine{begin: time.Now(), others: metrics.Line{}} }

func (l *sftLine) add(loss, tokens, norm, rate float64) {
	l.losses, l.tokens, l.norms, l.of = l.losses+loss*tokens, l.tokens+tokens, l.norms+norm, l.of+1
	l.Rate = &rate
}

// linesPerEpoch is how often an epoch is logged at least, if it has that many optimizer steps.
const linesPerEpoch = 10

// write logs a line under the number of optimizer steps taken.
func (t *Trainer) write(line *sftLine, samples int) error {
	if line.of > 0 {
		line.Loss, line.GradNorm = new(line.losses/line.tokens), new(line.norms/line.of)
	}
	perEpoch := (samples + t.Config.SFT.Batch - 1) / t.Config.SFT.Batch
	steps, all := int(t.Actor.Optimizer.Steps()), perEpoch*t.Config.SFT.Epochs
	line.Epoch = float64(steps) / float64(perEpoch)
	line.Seconds = time.Since(line.begin).Seconds()
	values := line.others
	values.Add(line.Metrics)
	return t.Record(steps, all, values)
}

// epoch passes over the demonstrations once, in an order keyed by (seed, epoch). It logs its course and returns the
// last line unwritten.
func (t *Trainer) epoch(ctx context.Context, samples *train.Batch, epoch int) (*sftLine, error) {
	s := t.Config.SFT
	order := rand.New(rand.NewPCG(t.Config.Run.Seed, uint64(epoch))).Perm(samples.Len())
	bar := t.Console.Bar(fmt.Sprintf("epoch %d/%d", epoch, s.Epochs), samples.Len())
	defer bar.Close()
	every := max((samples.Len()+s.Batch*linesPerEpoch-1)/(s.Batch*linesPerEpoch), 1)
	line := newSFTLine()
	for done, steps := 0, 0; done < len(order); done += s.Batch {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if steps == every {
			if err := t.write(line, samples.Len()); err != nil {
				return nil, err
			}
			line, steps = newSFTLine(), 0
		}
		indices := order[done:min(done+s.Batch, len(order))]
		loss, tokens, err := t.nll(ctx, samples.Take(indices))
		if err != nil {
			return nil, err
		}
		if !statistics.Finite(loss) {
			return nil, &session.Divergence{What: fmt.Sprintf("the loss is %v", loss)}
		}
		lr := t.rate.At(int(t.Actor.Optimizer.Steps()))
		result, err := t.Actor.Step(lr)
		if err != nil {
			return nil, err
		}
		if !result.Applied {
			return nil, &session.Divergence{What: fmt.Sprintf("the gradient norm is %v", result.GradNorm)}
		}
		line.add(loss, tokens, result.GradNorm, lr)
		bar.Set(done + len(indices))
		steps++
	}
	return line, nil
}

// nll is the mean negative log-likelihood of the sampled tokens of a mini-batch; its gradient is added to the actor's.
func (t *Trainer) nll(ctx context.Context, mini *train.Batch) (loss, tokens float64, err error) {
	mini.Weigh("token-mean", 0)
	objective := train.Likelihood(1)
	objective.Dropout = t.Actor.Dropout()
	found, err := t.Actor.Backward(ctx, mini, objective, []train.Column{{Name: torch.Task, Into: t.Actor.Gradients()}})
	if err != nil {
		return 0, 0, err
	}
	return found.Columns[0].Loss, found.Tokens, nil
}
