package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/advantage"
	"gyre/orchestrate/loop/budget"
	"gyre/orchestrate/loop/collapse"
	"gyre/orchestrate/loop/forecast"
	"gyre/orchestrate/model/checkpoint"
	"gyre/orchestrate/run/rundir"
)

// State is what a step needs besides weights and optimizer moments: small, and saved in every checkpoint.
type State struct {
	Step      int                  `json:"step"`              // steps done
	Batches   int                  `json:"batches,omitempty"` // that they have taken, where it is not one each
	EarlyStop collapse.EarlyStop   `json:"early_stop"`
	Collapse  collapse.Meter       `json:"collapse"`
	KL        advantage.Controller `json:"kl"`      // of the divergence in the rewards
	KLFrom    *penaltySettings     `json:"kl_from"` // the configuration that KL began with
	// optimizer steps of supervised fine-tuning, which its metrics count
	ActorSteps int64 `json:"actor_steps"`
	// of supervised fine-tuning, by the loss on held-out demonstrations; 0 = none
	BestEpoch int     `json:"best_epoch"`
	BestLoss  float64 `json:"best_loss"`
	// the most that a step found between the sampler's log-probs and the trainer's
	SamplerGap float64         `json:"sampler_gap"`
	Unsound    int             `json:"unsound"`           // the step since which gradients are not finite; 0 = they are
	Sound      int             `json:"sound"`             // the newest checkpoint before that
	Forecast   forecast.Ledger `json:"forecast,omitzero"` // of the reward
	Budget     *budget.State   `json:"budget,omitempty"`  // of episodes, where it is adaptive
	// the fingerprint of the model that the run's adapters lie beside; "" without [lora]
	Base string `json:"base,omitempty"`
}

// NextBatch is the number of the batch that training plays next.
func (s *State) NextBatch() int { return max(s.Batches, s.Step) + 1 }

// penaltySettings are what the configuration says of the divergence in the rewards.
type penaltySettings struct {
	Coef    float64 `json:"coef"`
	Target  float64 `json:"target"` // this and the horizon are 0 when the coefficient is fixed
	Horizon float64 `json:"horizon"`
}

// Penalty is the controller of the divergence in the rewards, nil where there is none there. The configuration's
// coefficient counts; a controller that has adapted it goes on only under the configuration that it began with. note
// says where it does not.
func (s *State) Penalty(a config.Algorithm) (controller *advantage.Controller, note string) {
	if a.KLIn == "loss" {
		return nil, ""
	}
	settings := penaltySettings{Coef: a.KLCoef}
	if a.KLControl == "adaptive" {
		settings.Target, settings.Horizon = a.KLTarget, a.KLHorizon
	}
	fresh := advantage.Controller{Coef: settings.Coef, Target: settings.Target, Horizon: settings.Horizon}
	switch before := s.KLFrom; {
	case before != nil && *before == settings && settings.Horizon > 0: // adapted: goes on
	case s.KL.Coef != fresh.Coef && s.Step > 0:
		note = fmt.Sprintf("the KL coefficient begins anew at %g (algorithm.kl_coef): the checkpoint's was %g, under "+
			"another algorithm.kl_*", fresh.Coef, s.KL.Coef)
		s.KL = fresh
	default:
		s.KL = fresh
	}
	s.KLFrom = &settings
	return &s.KL, note
}

// Check opens what the run would open, without weights and without touching its directory.
func (r *Training) Check(parts experiment.Parts) (*experiment.Experiment, error) {
	if err := rundir.Check(r.Checkpoints.Dir, r.Options.Resume); err != nil {
		return nil, err
	}
	from, err := r.Checkpoints.find(r.Options)
	if err == nil {
		err = r.settle(context.Background(), from) // one process
	}
	if err != nil {
		return nil, err
	}
	resolved, err := config.Resolved(r.Config)
	if err == nil {
		err = r.continueFrom(from, resolved)
	}
	if err == nil {
		_, err = experiment.OpenMachine(r.Config.Run.Threads, experiment.Placement(r.Config), r.Log.Warnf)
	}
	if err != nil {
		return nil, err
	}
	return experiment.Open(r.Config, parts.Continue(from))
}

// continueFrom reads where a checkpoint stopped, if there is one.
func (r *Training) continueFrom(from string, resolved []byte) error {
	if from == "" {
		return nil
	}
	if err := checkpoint.ReadState(from, &r.State); err != nil {
		return err
	}
	if why := inexact(from); why != "" {
		r.Log.Warnf("taking the weights of %s (step %d) further, but not as an uninterrupted run would: %s", from,
			r.State.Step, why)
	} else {
		r.Log.Infof("continuing from %s (step %d)", from, r.State.Step)
	}
	return r.compare(from, resolved)
}

// compare says where a resumed run goes on under another configuration than it began with. More steps or epochs are
// no change; another model.path is an error, since policy, tokenizer and reference of the run come from it.
func (r *Training) compare(from string, resolved []byte) error {
	path := filepath.Join(r.Checkpoints.Dir, "config.toml")
	if r.Options.ResumeFrom != "" {
		path = filepath.Join(filepath.Dir(filepath.Clean(from)), "config.toml")
	}
	before, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a checkpoint without its run: there is nothing to compare with
	}
	if err != nil {
		return err
	}
	changes, err := config.Compare(before, resolved)
	if err != nil {
		r.Log.Warnf("%s cannot be compared with the new configuration: %v", path, err)
	}
	if r.Dir != nil && r.Dir.Before != nil && r.Options.Resume { // a dry run opens no directory
		r.changes = slices.DeleteFunc(r.Dir.Before.Changes,
			func(c config.Change) bool { return c.Step > r.State.Step }) // steps that are done again
	}
	for _, change := range changes {
		switch change.Key {
		case "run.steps", "sft.epochs":
			continue
		case "model.dtype":
			// config.toml may have said auto
			if before, _ := rundir.ArithmeticOf(from); before == r.Config.Model.DType {
				continue
			}
		case "run.name", "run.output":
			if r.Options.ResumeFrom != "" {
				continue
			}
		case "model.path":
			if !r.sameModel(path) {
				return fmt.Errorf("%s (%s): a resumed run keeps its policy, tokenizer and reference; give the "+
					"model.path that it began with, or begin a new run with model.path=%s/actor", change, path, from)
			}
			continue
		}
		r.Log.Warnf("another configuration than before: %s", change)
		change.Step = r.State.Step
		r.changes = append(r.changes, change)
	}
	return nil
}

// sameModel reports whether the model.path of another configuration is this one's directory under another name.
func (r *Training) sameModel(other string) bool {
	c, err := config.Load(other, nil)
	if err != nil {
		return false
	}
	a, errA := os.Stat(c.Model.Path)
	b, errB := os.Stat(r.Config.Model.Path)
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// sameBase sees that the adapters of a resumed run lie beside the model that they were trained beside.
func (r *Training) sameBase() error {
	base := r.Actor.Trains.Base()
	if base == "" {
		return nil
	}
	found, err := checkpoint.Fingerprint(base)
	if err != nil {
		return err
	}
	if r.State.Base != "" && r.State.Base != found {
		return fmt.Errorf("the base model in %s has changed (%.12s…): the run's adapters were trained on %.12s…; "+
			"put that model there again", base, found, r.State.Base)
	}
	r.State.Base = found
	return nil
}

// markDone leaves a finished run as it is, but for one that was killed between its last checkpoint and its last word.
func (r *Training) markDone() error {
	r.Log.Infof("the run already has its %d steps: nothing is changed; raise run.steps (of gyre sft: sft.epochs) to "+
		"continue it", r.State.Step)
	before := r.Dir.Before
	if before == nil || before.Status != "running" {
		return nil
	}
	before.Status, before.Step = r.goal(), r.State.Step
	return r.Dir.WriteInfo(*before)
}

// inexact says what a checkpoint lacks for a run that equals an uninterrupted one, "" where it lacks nothing.
func inexact(from string) string {
	var why []string
	for _, name := range []string{"actor", "critic"} {
		if _, err := os.Stat(filepath.Join(from, name)); errors.Is(err, fs.ErrNotExist) && name == "critic" {
			continue
		}
		if _, err := os.Stat(moments(from, name)); errors.Is(err, fs.ErrNotExist) {
			why = append(why, fmt.Sprintf("the %s's optimizer starts anew (saved with checkpoint.optimizer = false)",
				name))
		}
	}
	return strings.Join(why, "; ")
}
