package trainer

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"time"

	"gyre/orchestrate/config"
	"gyre/orchestrate/episode"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/interrupt"
	"gyre/orchestrate/rollout"
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
func NewSFT(c *config.Config, o Options) (*SFT, error) {
	t := &SFT{run: newRun(c, o, c.SFT.Epochs)}
	t.sparse = true
	if err := t.begin(); err != nil {
		return nil, t.abandon(err)
	}
	return t, nil
}

func (t *SFT) begin() error {
	c, s := t.config, t.config.SFT
	from, err := t.openDirectory()
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
	t.rollouts = rollouts{t.equipment, t.dir.File("rollouts")}
	return t.openModels(from, experiment.Parts{Learn: true, Play: t.data == nil || t.validates()}, learning, nil)
}

// Run trains until the last epoch, an interruption or a failure. Metrics have ten lines per epoch; checkpoints follow run.save_every, counted in
// epochs, and the last epoch is always saved: `gyre train model.path=…/actor` starts from it.
func (t *SFT) Run(ctx context.Context) (outcome Outcome, err error) {
	if t.finished {
		return t.outcome(), nil
	}
	defer func() { outcome, err = t.conclude(outcome, err) }()
	if err := t.dir.WriteInfo(t.info("running", "")); err != nil {
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
			line.m["val/loss"], err = t.heldOutLoss(held)
		}
		if err != nil {
			return outcome, fmt.Errorf("epoch %d: %w", epoch, err)
		}
		t.state.Step, t.state.ActorSteps = epoch, t.actor.optimizer.Steps()
		last := epoch == s.Epochs
		if last && t.validates() {
			v, err := t.rollouts.validation(ctx, epoch)
			if err != nil {
				return outcome, err
			}
			maps.Copy(line.m, v)
		}
		if err := t.write(line, len(train)); err != nil {
			return outcome, err
		}
		stop := false
		select {
		case <-stopping:
			stop = true
		default:
		}
		if every := t.config.Run.SaveEvery; last || stop || every > 0 && epoch%every == 0 {
			if err := t.checkpoints.save(t.state); err != nil {
				return outcome, err
			}
			if err := t.checkpoints.proven(t.state); err != nil {
				return outcome, err
			}
		}
		if stop && !last {
			t.log.Infof("epoch %d is finished and saved; continue with --resume", epoch)
			return outcome, interrupt.Cause(ctx)
		}
	}
	return outcome, nil
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

// validates reports whether the fixed validation set is played; a run that is given its episodes may have no environments for it.
func (t *SFT) validates() bool {
	return t.config.Run.ValidateEvery > 0 && len(t.config.Validation.Envs) > 0
}

// readDemonstrations reads sft.data: the last sft.validation_episodes of it are held out.
func readDemonstrations(s config.SFT) ([]*episode.Episode, error) {
	episodes, err := readGiven(s.Data)
	if err != nil {
		return nil, fmt.Errorf("sft.data: %w", err)
	}
	if len(episodes) <= s.ValidationEpisodes {
		return nil, fmt.Errorf("sft.data: %s has %d episodes, expected more than sft.validation_episodes = %d", s.Data, len(episodes), s.ValidationEpisodes)
	}
	return episodes, nil
}

// demonstrations returns the episodes to learn from and those held out.
func (t *SFT) demonstrations(ctx context.Context) (train, held []*Sample, err error) {
	s := t.config.SFT
	if t.data != nil {
		all := wrap(t.data)
		cut := len(all) - s.ValidationEpisodes
		return all[:cut], all[cut:], nil
	}
	bar := t.console.Bar("demonstrations", s.Episodes+s.ValidationEpisodes)
	defer bar.Close()
	episodes, err := t.sampler.Player.Demonstrations(ctx, rollout.DemonstrationPlan{
		Envs: t.config.Envs, Episodes: s.Episodes + s.ValidationEpisodes, Seed: s.EnvSeed, Noise: s.Noise, Mistakes: s.Mistakes,
		Holdout: rollout.Holdout{Share: t.config.Validation.Holdout}, Progress: bar.Set,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("demonstrations: %w", err)
	}
	if len(episodes) <= s.ValidationEpisodes {
		return nil, nil, fmt.Errorf("only %d demonstrations could be made, expected more than sft.validation_episodes = %d", len(episodes), s.ValidationEpisodes)
	}
	samples := wrap(episodes)
	cut := len(samples) - s.ValidationEpisodes
	return samples[:cut], samples[cut:], nil
}

func wrap(episodes []*episode.Episode) []*Sample {
	out := make([]*Sample, len(episodes))
	for i, e := range episodes {
		out[i] = &Sample{Episode: e}
	}
	return out
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
		loss, tokens, err := t.nll(samples, indices, torch.Terms(t.actor.gradients, nil, nil)[:1])
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

// nll is the mean negative log-likelihood of the sampled tokens of a mini-batch; its gradient goes where out says.
func (t *SFT) nll(samples []*Sample, indices []int, out []torch.Component) (loss, tokens float64, err error) {
	weights, err := lossWeights(samples, indices, "token-mean", 0)
	if err != nil {
		return 0, 0, err
	}
	for _, micro := range microBatches(samples, indices, t.config.Actor.MicroBatchTokens) {
		w := gather(micro, func(i int) []float32 { return weights[i] })
		stats, err := t.actor.model.PolicyBackward(pack(samples, micro), torch.PolicyInputs{Weights: w},
			torch.PolicyLoss{Objective: torch.ObjectiveNLL, Temperature: 1}, out)
		if err != nil {
			return 0, 0, err
		}
		loss += stats.Components[torch.Task].Loss
		tokens += stats.Tokens
	}
	return loss, tokens, nil
}

// heldOutLoss is the mean negative log-likelihood of held-out demonstrations; no gradient is taken.
func (t *SFT) heldOutLoss(samples []*Sample) (float64, error) {
	sum, n := 0.0, 0.0
	for _, micro := range microBatches(samples, all(len(samples)), t.config.Actor.MicroBatchTokens) {
		scores, err := t.actor.model.Score(pack(samples, micro), 1, false)
		if err != nil {
			return 0, err
		}
		logprobs := scores.Logprobs
		for _, s := range micro {
			for i, sampled := range samples[s.sample].Mask[s.from:s.to] {
				if sampled {
					sum -= float64(logprobs[i])
					n++
				}
			}
			logprobs = logprobs[s.to-s.from:]
		}
	}
	return sum / math.Max(n, 1), nil
}
