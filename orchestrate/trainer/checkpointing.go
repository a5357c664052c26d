package trainer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gyre/orchestrate/advantage"
	"gyre/orchestrate/checkpoint"
	"gyre/orchestrate/config"
	"gyre/orchestrate/metrics"
	"gyre/orchestrate/rundir"
	"gyre/torch"
)

// openDirectory opens the run directory and its metrics and finds the checkpoint to continue from ("" = start at the beginning).
func (t *Trainer) openDirectory() (from string, err error) {
	c, o := t.config, t.options
	path := filepath.Join(c.Run.Output, c.Run.Name)
	if t.dir, err = rundir.Open(path, o.Resume); err != nil {
		return "", err
	}
	t.log = t.dir.Log
	t.log.Console = t.console
	resolved, err := config.Resolved(c)
	if err != nil {
		return "", err
	}
	if from, err = t.findCheckpoint(path); err != nil {
		return "", err
	}
	if from != "" {
		if err := checkpoint.ReadState(from, &t.state); err != nil {
			return "", err
		}
		t.log.Infof("continuing from %s (step %d)", from, t.state.Step)
		t.warnOfChanges(resolved)
	}
	// Lines after the checkpoint are of steps that will be done again, to the same values.
	last := t.state.Step
	if from == "" {
		last = -1
	}
	switch before := t.dir.Before; {
	case o.Resume && from != "" && before != nil:
		t.firstStep = before.FirstStep
	case o.ResumeFrom != "":
		t.firstStep = t.state.Step + 1
	}
	if t.logger, err = metrics.OpenSinks(metrics.Run{
		Dir: t.dir.Path, ID: t.dir.ID, Name: c.Run.Name, Config: resolved, Loggers: c.Run.Loggers, First: t.firstStep, Last: last, Sparse: o.sft,
	}); err != nil {
		return "", err
	}
	return from, t.dir.WriteConfig(resolved)
}

// warnOfChanges says where a resumed run goes on under another configuration than it began with. More steps or epochs are no change.
func (t *Trainer) warnOfChanges(resolved []byte) {
	before, err := os.ReadFile(t.dir.File("config.toml"))
	if err != nil {
		return // resumed from another run's checkpoint: there is nothing to compare with
	}
	changes, err := config.Changes(before, resolved)
	if err != nil {
		t.log.Warnf("config.toml of this run cannot be compared with its new configuration: %v", err)
	}
	for _, change := range changes {
		if !strings.HasPrefix(change, "run.steps = ") && !strings.HasPrefix(change, "sft.epochs = ") {
			t.log.Warnf("another configuration than before: %s", change)
		}
	}
}

func (t *Trainer) findCheckpoint(run string) (string, error) {
	if dir := t.options.ResumeFrom; dir != "" {
		if err := checkpoint.Verify(dir); err != nil {
			return "", fmt.Errorf("resuming: %w (give the global_step_N folder, not its actor)", err)
		}
		return dir, nil
	}
	if !t.options.Resume {
		return "", nil
	}
	newest, ok, skipped, err := checkpoint.Latest(run, rundir.CheckpointPrefix)
	if err != nil {
		return "", fmt.Errorf("resuming: %w", err)
	}
	for _, problem := range skipped {
		t.log.Warnf("passed over: %v", problem)
	}
	if !ok {
		if len(skipped) > 0 {
			return "", fmt.Errorf("resuming: no intact checkpoint is left in %s: %w", run, errors.Join(skipped...))
		}
		t.log.Infof("no checkpoint in %s yet: starting at the beginning", run)
		return "", nil
	}
	return newest.Dir, nil
}

// restore loads optimizer moments; weights and State are already there. A new run gets its initial State.
func (t *Trainer) restore(from string) error {
	a := t.config.Algorithm
	if from == "" {
		t.state.KL = advantage.Controller{Coef: a.KLCoef}
	} else {
		for _, l := range []struct {
			name string
			*learner
		}{{"actor", t.actor}, {"critic", t.critic}} {
			if l.learner == nil {
				continue
			}
			path := filepath.Join(from, "optimizer", l.name+".safetensors")
			if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
				t.log.Warnf("%s is not there: the %s's optimizer starts anew, and the run will not equal an uninterrupted one", path, l.name)
				continue
			}
			if err := checkpoint.LoadOptimizer(path, l.model, l.optimizer); err != nil {
				return fmt.Errorf("restoring the %s's optimizer: %w", l.name, err)
			}
		}
		t.savedStep = t.state.Step
	}
	if a.KLIn == "reward" && a.KLControl == "adaptive" {
		t.state.KL.Target, t.state.KL.Horizon = a.KLTarget, a.KLHorizon
	}
	return nil
}

// saveCheckpoint writes global_step_N: actor (and critic) as Hugging Face directories, optimizer moments, and State in the manifest. It is
// there completely or not at all. A step that is already saved is not saved again.
func (t *Trainer) saveCheckpoint() (err error) {
	if t.savedStep == t.state.Step {
		return nil
	}
	// What belongs to a step before the checkpoint is on the disk before it: a resumed run does not make it again.
	if err := t.componentFiles.Wait(); err != nil {
		return err
	}
	begin := time.Now()
	defer func() { t.checkpointTime = time.Since(begin) }()
	p, err := checkpoint.Begin(t.dir.Path, fmt.Sprintf("%s%d", rundir.CheckpointPrefix, t.state.Step))
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("saving the checkpoint of step %d: %w", t.state.Step, err), p.Discard())
		}
	}()
	dtype := torch.F32
	if t.config.Checkpoint.DType == "bfloat16" {
		dtype = torch.BF16
	}
	if err := os.Mkdir(filepath.Join(p.Dir, "optimizer"), 0o755); err != nil {
		return err
	}
	for _, l := range []struct {
		name string
		*learner
	}{{"actor", t.actor}, {"critic", t.critic}} {
		if l.learner == nil {
			continue
		}
		dir := filepath.Join(p.Dir, l.name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		if err := checkpoint.SaveModel(l.model, dir, t.config.Model.Path, dtype); err != nil {
			return err
		}
		if !t.config.Checkpoint.Optimizer {
			continue
		}
		if err := checkpoint.SaveOptimizer(filepath.Join(p.Dir, "optimizer", l.name+".safetensors"), l.model, l.optimizer); err != nil {
			return err
		}
	}
	if err := p.Commit(t.state); err != nil {
		return err
	}
	t.savedStep = t.state.Step
	return checkpoint.Prune(t.dir.Path, rundir.CheckpointPrefix, t.config.Checkpoint.Keep, nil)
}
