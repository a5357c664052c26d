package trainer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"time"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/model/checkpoint"
	"gyre/orchestrate/run/interrupt"
	"gyre/orchestrate/run/rundir"
	"gyre/torch"
)

// SFT is a run of supervised fine-tuning: cross-entropy on the policy-owned tokens of expert episodes that were built with exactly the
// prompts the agent loop uses. A step of the run is an epoch, one of its metrics an
// optimizer step. There is no critic and no reference.
type SFT struct {
	run
	rollouts rollouts
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
	learning, err := policyLearning(how, s.Epochs*max((episodes+s.Batch-1)/s.Batch, 1))
	if err != nil {
		return fmt.Errorf("[sft]: %w", err)
	}
	t.rollouts = rollouts{t.equipment, t.file("rollouts")}
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
	train, held, err := t.demonstrations(ctx)
	if err != nil {
		return outcome, err
	}
	stopping := interrupt.Graceful(ctx)
	for epoch := t.state.Step + 1; epoch <= s.Epochs; epoch++ {
		line, err := t.epoch(ctx, train, epoch)
		if err == nil && len(held) > 0 {
			err = t.judge(ctx, line, held, epoch)
		}
		if err != nil {
			return outcome, fmt.Errorf("epoch %d: %w", epoch, err)
		}
		t.state.Step, t.state.ActorSteps = epoch, t.actor.optimizer.Steps()
		if epoch == s.Epochs {
			return outcome, t.end(ctx, line, len(train))
		}
		if err := t.write(line, len(train)); err != nil {
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
func (t *SFT) judge(ctx context.Context, line *sftLine, held []*Sample, epoch int) error {
	loss, err := t.heldOutLoss(ctx, held)
	if err != nil {
		return err
	}
	if t.state.BestEpoch == 0 || loss < t.state.BestLoss {
		t.state.BestEpoch, t.state.BestLoss = epoch, loss
	}
	line.m["val/loss"], line.m["val/best_loss"], line.m["val/best_epoch"] = loss, t.state.BestLoss, float64(t.state.BestEpoch)
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
		maps.Copy(line.m, v)
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
		if err := checkpoint.Reload(t.actor.model, dir); err != nil {
			return nil, err
		}
	}
	return t.rollouts.validation(ctx, t.state.Step, int(t.state.ActorSteps))
}

// sftLine is one line of metrics: what the optimizer steps since the line before were like.
type sftLine struct {
	begin time.Time
	means mean
	m     map[string]float64
}

func newSFTLine() *sftLine { return &sftLine{time.Now(), mean{}, map[string]float64{}} }

// linesPerEpoch is how often an epoch is logged at least, if it has that many optimizer steps.
const linesPerEpoch = 10

// write logs a line under the number of optimizer steps taken.
func (t *SFT) write(line *sftLine, samples int) error {
	line.means.into(line.m)
	perEpoch := (samples + t.config.SFT.Batch - 1) / t.config.SFT.Batch
	steps, all := int(t.actor.optimizer.Steps()), perEpoch*t.config.SFT.Epochs
	line.m["train/epoch"] = float64(steps) / float64(perEpoch)
	line.m["timing_s/step"] = time.Since(line.begin).Seconds()
	values := map[string]any{}
	record(values, line.m)
	if err := t.logger.Log(steps, values); err != nil {
		return err
	}
	t.console.Step(steps, all, values)
	t.log.File(t.console.Line(steps, all, values))
	return nil
}

// epoch passes over the demonstrations once, in an order keyed by (seed, epoch). It logs its course and returns the last line unwritten.
func (t *SFT) epoch(ctx context.Context, samples []*Sample, epoch int) (*sftLine, error) {
	s := t.config.SFT
	order := rand.New(rand.NewPCG(t.config.Run.Seed, uint64(epoch))).Perm(len(samples))
	bar := t.console.Bar(fmt.Sprintf("epoch %d/%d", epoch, s.Epochs), len(samples))
	defer bar.Close()
	every := max((len(samples)+s.Batch*linesPerEpoch-1)/(s.Batch*linesPerEpoch), 1)
	line := newSFTLine()
	for done, steps := 0, 0; done < len(order); done += s.Batch {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if steps == every {
			if err := t.write(line, len(samples)); err != nil {
				return nil, err
			}
			line, steps = newSFTLine(), 0
		}
		indices := order[done:min(done+s.Batch, len(order))]
		if err := t.actor.gradients.Zero(); err != nil {
			return nil, err
		}
		loss, tokens, err := t.nll(ctx, samples, indices)
		if err != nil {
			return nil, err
		}
		if math.IsNaN(loss) || math.IsInf(loss, 0) {
			return nil, &errDiverged{fmt.Sprintf("the loss is %v", loss)}
		}
		result, lr, err := t.actor.apply()
		if err != nil {
			return nil, err
		}
		if !result.Applied {
			return nil, &errDiverged{fmt.Sprintf("the gradient norm is %v", result.GradNorm)}
		}
		line.means.add("train/loss", loss*tokens, tokens)
		line.means.add("train/grad_norm", result.GradNorm, 1)
		line.m["train/lr"] = lr
		bar.Set(done + len(indices))
		steps++
	}
	return line, nil
}

// nll is the mean negative log-likelihood of the sampled tokens of a mini-batch; its gradient is added to the actor's.
func (t *SFT) nll(ctx context.Context, samples []*Sample, indices []int) (loss, tokens float64, err error) {
	weights, err := lossWeights(samples, indices, "token-mean", 0)
	if err != nil {
		return 0, 0, err
	}
	found := mean{}
	err = t.eachPass(ctx, t.actor.model, samples, indices, []*torch.Gradients{t.actor.gradients}, func(micro []stretch) error {
		w := gather(micro, func(i int) []float32 { return weights[i] })
		stats, err := t.actor.model.PolicyBackward(pack(samples, micro), torch.PolicyInputs{Weights: w},
			torch.PolicyLoss{Objective: torch.ObjectiveNLL, Temperature: 1}, torch.Terms(t.actor.gradients, nil, nil)[:1])
		found.addIn(t.lane, "loss", stats.Terms[torch.Task].Loss, stats.Tokens)
		return err
	})
	if err == nil {
		found, err = found.ofAll(ctx, t.world)
	}
	sum := found.total()["loss"]
	return sum[0], sum[1], err
}

// heldOutLoss is the mean negative log-likelihood of held-out demonstrations; no gradient is taken.
func (t *SFT) heldOutLoss(ctx context.Context, samples []*Sample) (float64, error) {
	sums := make([]float64, 2) // of negative log-likelihoods, of tokens
	passes, err := t.micro(ctx, samples, t.mine(samples, all(len(samples))))
	if err != nil {
		return 0, err
	}
	for _, micro := range passes {
		scores, err := t.actor.model.Score(pack(samples, micro), 1, false)
		if err != nil {
			return 0, err
		}
		logprobs := scores.Logprobs
		for _, s := range micro {
			for i, sampled := range samples[s.sample].Mask[s.from:s.to] {
				if sampled {
					sums[0] -= float64(logprobs[i])
					sums[1]++
				}
			}
			logprobs = logprobs[s.to-s.from:]
		}
	}
	err = t.world.Data().AllReduce(ctx, sums, torch.Sum)
	return sums[0] / math.Max(sums[1], 1), err
}
