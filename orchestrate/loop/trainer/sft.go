package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"time"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/schedule"
	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/model/checkpoint"
	"gyre/orchestrate/run/interrupt"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
	"gyre/torch"
)

// SFT is a run of supervised fine-tuning: cross-entropy on the policy-owned tokens of expert episodes that were built with exactly the
// prompts the agent loop uses. A step of the run is an epoch, one of its metrics an
// optimizer step. There is no critic and no reference.
type SFT struct {
	run
	rollouts rollouts
	rate     schedule.Schedule
	data     []*episode.Episode // demonstrations that were given (sft.data)
}

// NewSFT opens the run directory and loads or restores what the epochs need. Close it.
func NewSFT(ctx context.Context, c *config.Config, o Options) (*SFT, error) {
	t := &SFT{run: newRun(c, o, c.SFT.Epochs)}
	t.sparse = true
	if err := t.begin(ctx); err != nil {
		return nil, t.abandon(err)
	}
	return t, nil
}

func (t *SFT) begin(ctx context.Context) error {
	c, s := t.config, t.config.SFT
	from, err := t.openDirectory(ctx)
	if err != nil || t.finished {
		return err
	}
	episodes := s.Episodes
	if s.Data != "" {
		if t.data, err = readDemonstrations(s); err != nil {
			return err
		}
		episodes = len(t.data) - s.ValidationEpisodes
	}
	how := c.Actor // what is not in [sft]: betas, eps, weight decay, clipping
	how.LR, how.Schedule, how.MinLRRatio, how.WarmupSteps = s.LR, s.Schedule, s.MinLRRatio, s.WarmupSteps
	learning, rate, err := policyOptimization(how, s.Epochs*max((episodes+s.Batch-1)/s.Batch, 1))
	if err != nil {
		return fmt.Errorf("[sft]: %w", err)
	}
	t.rate, t.rollouts = rate, rollouts{equipment: t.equipment, dir: t.file("rollouts")}
	return t.openModels(ctx, from, experiment.Parts{Learn: true, Play: t.data == nil || t.validates()}, learning, nil)
}

// Run trains until the last epoch, an interruption or a failure, and validates the best epoch by the loss on held-out demonstrations. Metrics have
// ten lines per epoch; checkpoints follow run.save_every, counted in epochs, and the best epoch and the last are always saved.
func (t *SFT) Run(ctx context.Context) (outcome Outcome, err error) {
	if t.finished {
		return t.outcome(), nil
	}
	defer func() { outcome, err = t.conclude(outcome, err) }()
	if err := t.started(); err != nil {
		return outcome, err
	}
	s := t.config.SFT
	learnt, held, err := t.demonstrations(ctx)
	if err != nil {
		return outcome, err
	}
	stopping := interrupt.Graceful(ctx)
	for epoch := t.state.Step + 1; epoch <= s.Epochs; epoch++ {
		line, err := t.epoch(ctx, learnt, epoch)
		if err == nil && held.Len() > 0 {
			err = t.judge(ctx, line, held, epoch)
		}
		if err != nil {
			return outcome, fmt.Errorf("epoch %d: %w", epoch, err)
		}
		t.state.Step, t.state.ActorSteps = epoch, t.actor.Optimizer.Steps()
		if epoch == s.Epochs {
			return outcome, t.end(ctx, line, learnt.Len())
		}
		if err := t.write(line, learnt.Len()); err != nil {
			return outcome, err
		}
		stop, err := t.stopping(ctx, stopping)
		if err != nil {
			return outcome, err
		}
		if every := t.config.Run.SaveEvery; stop != nil || epoch == t.state.BestEpoch || every > 0 && epoch%every == 0 {
			if err := t.save(ctx); err != nil {
				return outcome, err
			}
		}
		if stop != nil {
			t.log.Infof("epoch %d is finished and saved; continue with --resume", epoch)
			return outcome, stop
		}
	}
	return outcome, nil
}

// judge measures the loss on held-out demonstrations, by which the best epoch is chosen.
func (t *SFT) judge(ctx context.Context, line *sftLine, held *train.Batch, epoch int) error {
	loss, err := t.heldOutLoss(ctx, held)
	if err != nil {
		return err
	}
	if t.state.BestEpoch == 0 || loss < t.state.BestLoss {
		t.state.BestEpoch, t.state.BestLoss = epoch, loss
	}
	line.HeldOut = &heldOut{loss, t.state.BestLoss, t.state.BestEpoch}
	return nil
}

func (t *SFT) save(ctx context.Context) error {
	if err := t.checkpoints.save(ctx, t.state); err != nil {
		return err
	}
	return t.checkpoints.proven(t.state)
}

// end validates the best epoch, saves what is not saved yet, and names the checkpoint to start from: best in the run's directory.
func (t *SFT) end(ctx context.Context, line *sftLine, samples int) error {
	best, last := t.state.BestEpoch, t.state.Step
	if best == 0 {
		best = last
	}
	folder := fmt.Sprintf("%s%d", rundir.CheckpointPrefix, best)
	pending, err := t.checkpoints.write(ctx, t.state) // before the best epoch's weights take the place of the last one's
	if err != nil {
		return err
	}
	if t.validates() {
		v, err := t.validateEpoch(ctx, filepath.Join(t.checkpoints.dir, folder, "actor"), best != last)
		if err != nil {
			return errors.Join(err, pending.Discard())
		}
		line.others.Copy(v)
	}
	// The metrics line comes before the checkpoint, as after every step.
	if err := t.write(line, samples); err != nil {
		return errors.Join(err, pending.Discard())
	}
	if err := t.checkpoints.commit(ctx, pending, t.state); err != nil {
		return err
	}
	if err := t.checkpoints.proven(t.state); err != nil {
		return err
	}
	if !t.world.Writes() {
		return nil
	}
	if err := atomicfile.Symlink(folder, t.dir.File("best")); err != nil {
		return err
	}
	note := ""
	if t.state.BestEpoch > 0 {
		note = fmt.Sprintf(" has the lowest loss on held-out demonstrations (%.4g)", t.state.BestLoss)
	}
	t.log.Infof("epoch %d%s: start from it with model.path=%s", best, note, t.dir.File("best", "actor"))
	return nil
}

// validateEpoch plays the validation set, with the weights of a checkpoint if they are not those in memory.
func (t *SFT) validateEpoch(ctx context.Context, dir string, reload bool) (map[string]float64, error) {
	if reload {
		if err := checkpoint.Reload(t.actor.Model, dir); err != nil {
			return nil, err
		}
	}
	return t.rollouts.validation(ctx, t.state.Step, int(t.state.ActorSteps))
}

// sftLine is one line of metrics: what the optimizer steps since the line before were like.
type sftLine struct {
	sftMetrics
	others                    metrics.Line
	begin                     time.Time
	losses, tokens, norms, of float64 // sums, and the number of optimizer steps
}

// sftMetrics are those of supervised fine-tuning.
type sftMetrics struct {
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
func (t *SFT) write(line *sftLine, samples int) error {
	if line.of > 0 {
		line.Loss, line.GradNorm = of(line.losses/line.tokens), of(line.norms/line.of)
	}
	perEpoch := (samples + t.config.SFT.Batch - 1) / t.config.SFT.Batch
	steps, all := int(t.actor.Optimizer.Steps()), perEpoch*t.config.SFT.Epochs
	line.Epoch = float64(steps) / float64(perEpoch)
	line.Seconds = time.Since(line.begin).Seconds()
	values := line.others
	values.Add(line.sftMetrics)
	if err := t.logger.Log(steps, values); err != nil {
		return err
	}
	t.console.Step(steps, all, values)
	t.log.File(t.console.Line(steps, all, values))
	return nil
}

// epoch passes over the demonstrations once, in an order keyed by (seed, epoch). It logs its course and returns the last line unwritten.
func (t *SFT) epoch(ctx context.Context, samples *train.Batch, epoch int) (*sftLine, error) {
	s := t.config.SFT
	order := rand.New(rand.NewPCG(t.config.Run.Seed, uint64(epoch))).Perm(samples.Len())
	bar := t.console.Bar(fmt.Sprintf("epoch %d/%d", epoch, s.Epochs), samples.Len())
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
		if math.IsNaN(loss) || math.IsInf(loss, 0) {
			return nil, &errDiverged{fmt.Sprintf("the loss is %v", loss)}
		}
		lr := t.rate.At(int(t.actor.Optimizer.Steps()))
		result, err := t.actor.Step(lr)
		if err != nil {
			return nil, err
		}
		if !result.Applied {
			return nil, &errDiverged{fmt.Sprintf("the gradient norm is %v", result.GradNorm)}
		}
		line.add(loss, tokens, result.GradNorm, lr)
		bar.Set(done + len(indices))
		steps++
	}
	return line, nil
}

// nll is the mean negative log-likelihood of the sampled tokens of a mini-batch; its gradient is added to the actor's.
func (t *SFT) nll(ctx context.Context, mini *train.Batch) (loss, tokens float64, err error) {
	if err := mini.Weigh("token-mean", 0); err != nil {
		return 0, 0, err
	}
	found, err := t.actor.Backward(ctx, mini, train.Likelihood(1), []train.Column{{Name: torch.Task, Into: t.actor.Gradients()}})
	if err != nil {
		return 0, 0, err
	}
	return found.Columns[0].Loss, found.Tokens, nil
}

// heldOutLoss is the mean negative log-likelihood of held-out demonstrations; no gradient is taken.
func (t *SFT) heldOutLoss(ctx context.Context, held *train.Batch) (float64, error) {
	logprobs, err := t.actor.Score(ctx, held, train.What{Temperature: 1})
	if err != nil {
		return 0, err
	}
	return -sampledMean(held, logprobs), nil
}
