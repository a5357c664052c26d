package trainer

import (
	"errors"
	"fmt"
	"time"

	"gyre/orchestrate/advantage"
	"gyre/orchestrate/checkpoint"
	"gyre/orchestrate/components"
	"gyre/orchestrate/config"
	"gyre/orchestrate/episode"
	"gyre/orchestrate/metrics"
	"gyre/orchestrate/rundir"
	"gyre/orchestrate/schedule"
	"gyre/torch"
)

// State is what a step needs besides weights and optimizer moments: small, and saved in every checkpoint.
type State struct {
	Step        int                  `json:"step"` // steps done
	EarlyStop   EarlyStop            `json:"early_stop"`
	KL          advantage.Controller `json:"kl"`
	ActorSteps  int64                `json:"actor_steps"` // optimizer steps taken
	CriticSteps int64                `json:"critic_steps"`
}

// Options are the parts of a run that are not in its configuration.
type Options struct {
	Resume     bool   // continue the run directory's newest checkpoint, or start when there is none
	ResumeFrom string // continue this global_step_N directory instead
	Replay     string // JSONL of episodes to update on instead of playing
	Console    *metrics.Console

	sft bool
}

// Trainer is one run.
type Trainer struct {
	config  *config.Config
	options Options
	console *metrics.Console
	dir     *rundir.Dir
	log     *rundir.Log
	logger  metrics.Sink

	actor     *learner
	critic    *learner     // nil unless the estimator needs one
	reference *torch.Model // nil unless something uses it
	sampler   *sampler     // nil when nothing is played
	replay    *replay
	data      []*episode.Episode // demonstrations that were given (sft.data)

	state          State
	parityProven   bool          // the sampler's log-probs equal the trainer's on this machine
	oldFromSampler bool          // this batch's old log-probs are the sampler's
	savedStep      int           // the newest checkpoint's
	firstStep      int           // the first step that this run directory's metrics can have
	checkpointTime time.Duration // of the checkpoint that was saved after the step before; 0 = none was
	profile        profile
	analysing      bool // preparing an analysis batch: nothing may be remembered
	componentFiles *components.Saver
	notedParts     bool
	partsStep      int // whose parts a probe measures, 0 = none, and where to
	partsFolder    string
}

// NewSFT is New for supervised fine-tuning: there is no critic, no reference, and the learning rate is the [sft] table's.
func NewSFT(c *config.Config, o Options) (*Trainer, error) {
	sft := *c
	sft.Algorithm.Advantage, sft.Algorithm.KLCoef = "grpo", 0
	s := c.SFT
	sft.Actor.LR, sft.Actor.Schedule, sft.Actor.MinLRRatio, sft.Actor.WarmupSteps = s.LR, s.Schedule, s.MinLRRatio, s.WarmupSteps
	sft.Actor.MiniBatch, sft.Actor.Epochs = s.Batch, 1
	sft.Run.Steps = s.Epochs
	o.sft = true
	return New(&sft, o)
}

// New opens the run directory and loads or restores everything a step needs. Close it.
func New(c *config.Config, o Options) (t *Trainer, err error) {
	t = &Trainer{config: c, options: o, console: o.Console, profile: profile{begin: time.Now(), onDevice: c.Model.Device != "cpu"}}
	defer func() {
		if err != nil {
			if t.dir != nil {
				err = errors.Join(err, t.dir.Discard())
			}
			t.Close()
			t = nil
		}
	}()
	t.savedStep = -1
	if t.profile.fixedThreads, err = setThreads(c.Run.Threads); err != nil {
		return t, err
	}
	from, err := t.openDirectory()
	if err != nil {
		return t, err
	}
	if o.Replay != "" {
		if t.replay, err = openReplay(o.Replay, c.Run.Steps); err != nil {
			return t, err
		}
	}
	if o.sft && c.SFT.Data != "" {
		if t.data, err = readDemonstrations(c.SFT); err != nil {
			return t, err
		}
	}
	if err := t.loadModels(from); err != nil {
		return t, err
	}
	if err := t.restore(from); err != nil {
		return t, err
	}
	if t.replay == nil && (t.data == nil || t.validates()) {
		if err := t.openSampler(); err != nil {
			return t, err
		}
	}
	t.noteMemory()
	return t, nil
}

// Close frees everything. It may be called on a half-opened trainer.
func (t *Trainer) Close() {
	if t.sampler != nil {
		t.sampler.close()
	}
	t.critic.Close()
	t.actor.Close()
	if t.reference != nil {
		t.reference.Close()
	}
	if t.logger != nil {
		t.logger.Close()
	}
	if t.dir != nil {
		t.dir.Close()
	}
}

// loadModels loads actor, critic and reference: from the checkpoint when there is one, from their configured directories otherwise.
// The reference is always the configured one (or the initial policy): it never moves.
func (t *Trainer) loadModels(from string) error {
	c := t.config
	actorDir, criticDir := c.Model.Path, c.Critic.Path
	if criticDir == "" {
		criticDir = c.Model.Path
	}
	if from != "" {
		actorDir, criticDir = from+"/actor", from+"/critic"
	}
	model, err := t.load(actorDir, torch.HeadLM)
	if err != nil {
		return fmt.Errorf("loading the policy: %w", err)
	}
	a := c.Actor
	lr, err := schedule.New(schedule.Schedule{Kind: a.Schedule, Peak: a.LR, Floor: a.MinLRRatio, Warmup: a.WarmupSteps,
		Total: t.optimizerSteps(a.MiniBatch, a.Epochs)})
	if err != nil {
		model.Close()
		return fmt.Errorf("actor.schedule: %w", err)
	}
	t.actor, err = newLearner(model, torch.AdamW{Beta1: a.Betas[0], Beta2: a.Betas[1], Eps: a.Eps, WeightDecay: a.WeightDecay}, a.ClipGrad, lr)
	if err != nil {
		model.Close()
		return err
	}
	if err := model.SetRecompute(a.RecomputeActivations); err != nil {
		return err
	}
	if c.Algorithm.UsesCritic() {
		model, err := t.load(criticDir, torch.HeadValue)
		if err != nil {
			return fmt.Errorf("loading the critic: %w", err)
		}
		k := c.Critic
		lr, err := schedule.New(schedule.Schedule{Kind: k.Schedule, Peak: k.LR, Warmup: k.WarmupSteps,
			Total: t.optimizerSteps(k.MiniBatch, k.Epochs)})
		if err != nil {
			model.Close()
			return fmt.Errorf("critic.schedule: %w", err)
		}
		t.critic, err = newLearner(model, torch.AdamW{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: k.WeightDecay}, k.ClipGrad, lr)
		if err != nil {
			model.Close()
			return err
		}
		if err := model.SetRecompute(a.RecomputeActivations); err != nil {
			return err
		}
	}
	if c.Algorithm.KLCoef != 0 {
		path := c.Model.Reference
		if path == "" {
			path = c.Model.Path
		}
		if t.reference, err = t.load(path, torch.HeadLM); err != nil {
			return fmt.Errorf("loading the KL reference: %w", err)
		}
	}
	return nil
}

// load reads a model and says what is worth knowing about it.
func (t *Trainer) load(dir string, head torch.Head) (*torch.Model, error) {
	loaded, err := checkpoint.Load(dir, head, placement(t.config))
	if err != nil {
		return nil, err
	}
	for _, note := range loaded.Notes {
		t.log.Infof("%s", note)
	}
	return loaded.Model, nil
}

// optimizerSteps estimates how many optimizer steps the whole run takes, for schedules that decay: exact unless the filter drops groups.
func (t *Trainer) optimizerSteps(miniBatch, epochs int) int {
	perStep := func(episodes int) int { return epochs * max((episodes+miniBatch-1)/miniBatch, 1) }
	switch {
	case t.data != nil:
		return t.config.Run.Steps * perStep(len(t.data)-t.config.SFT.ValidationEpisodes)
	case t.options.sft:
		return t.config.Run.Steps * perStep(t.config.SFT.Episodes)
	case t.replay != nil:
		total := 0
		for step := range t.config.Run.Steps {
			total += perStep(len(t.replay.at(step + 1)))
		}
		return total
	}
	return t.config.Run.Steps * perStep(t.config.Episodes())
}

// openSampler makes the sampler and proves it equal to the trainer.
func (t *Trainer) openSampler() error {
	var err error
	if t.sampler, err = openSampler(t.config, t.actor.model); err != nil {
		return err
	}
	gap, err := parityGap(t.actor.model, t.sampler.engine, t.temperature())
	if err != nil {
		return fmt.Errorf("self-test of the sampler: %w", err)
	}
	t.parityProven = gap == 0
	if !t.parityProven {
		t.log.Warnf("on this machine the sampler's log-probs differ from the trainer's by up to %.2g: old log-probs are recomputed every step", gap)
	}
	return nil
}

// Outcome says how a run ended.
type Outcome struct {
	Steps int
	Dir   string
	Early *StoppedEarly // not nil when a collapse rule ended it
}
