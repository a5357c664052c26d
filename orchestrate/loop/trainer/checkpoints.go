package trainer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/model/checkpoint"
	"gyre/orchestrate/run/rundir"
	"gyre/torch"
)

// checkpoints is the phase that saves a run and finds where it stopped.
type checkpoints struct {
	*equipment
	dir   string        // the run directory
	saved int           // step of the newest checkpoint; -1 = none
	proof int           // step of the checkpoint before it, kept until a step after the newest shows that it is good; -1 = none
	took  time.Duration // to save the checkpoint after the step before; 0 = none was
}

// find names the checkpoint to continue from; "" means to start at the beginning.
func (c *checkpoints) find(o Options) (string, error) {
	if dir := o.ResumeFrom; dir != "" {
		if err := checkpoint.Verify(dir); err != nil {
			return "", fmt.Errorf("resuming: %w (give the global_step_N folder, not its actor)", err)
		}
		return dir, nil
	}
	if !o.Resume {
		return "", nil
	}
	newest, ok, skipped, err := checkpoint.Latest(c.dir, rundir.CheckpointPrefix)
	if err != nil {
		return "", fmt.Errorf("resuming: %w", err)
	}
	for _, problem := range skipped {
		c.log.Warnf("passed over: %v", problem)
	}
	if !ok {
		if len(skipped) > 0 {
			return "", fmt.Errorf("resuming: no intact checkpoint is left in %s: %w", c.dir, errors.Join(skipped...))
		}
		c.log.Infof("no checkpoint in %s yet: starting at the beginning", c.dir)
		return "", nil
	}
	return newest.Dir, nil
}

// each calls f for every model that learns, with its name in a checkpoint.
func (c *checkpoints) each(f func(name string, l *train.Learner) error) error {
	for _, x := range []struct {
		name string
		l    *train.Learner
	}{{"actor", c.actor}, {"critic", c.critic}} {
		if x.l == nil {
			continue
		}
		if err := f(x.name, x.l); err != nil {
			return err
		}
	}
	return nil
}

// moments is the file of a model's optimizer in a checkpoint.
func moments(step, name string) string {
	return filepath.Join(step, "optimizer", name+".safetensors")
}

// restore loads the optimizer moments of a checkpoint, where it has them; weights and State are already there.
func (c *checkpoints) restore(from string, step int) error {
	c.saved = step
	return c.each(func(name string, l *train.Learner) error {
		err := checkpoint.LoadOptimizer(moments(from, name), l.Model, l.Optimizer)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("restoring the %s's optimizer: %w", name, err)
		}
		return nil
	})
}

// save writes global_step_N: actor (and critic) as Hugging Face directories, optimizer moments, and State in the manifest. It is
// there completely or not at all. A step that is already saved is not saved again.
func (c *checkpoints) save(ctx context.Context, state State) error {
	p, err := c.write(ctx, state)
	if err != nil {
		return err
	}
	return c.commit(ctx, p, state)
}

// write writes everything that save saves, under a name that nobody takes for a checkpoint; nil when the step is already saved, and on ranks
// that write nothing. Commit it or discard it.
func (c *checkpoints) write(ctx context.Context, state State) (p *checkpoint.Pending, err error) {
	if c.saved == state.Step {
		return nil, nil
	}
	if err := c.sound(ctx); err != nil {
		return nil, fmt.Errorf("no checkpoint of step %d is saved: %w", state.Step, err)
	}
	begin := time.Now()
	defer func() { c.took = time.Since(begin) }()
	p, err = c.fill(ctx, state)
	if failed := c.world.Agree(ctx, err); failed != nil && err == nil {
		return nil, errors.Join(failed, p.Discard())
	}
	return p, err
}

// fill makes the files of a checkpoint. Ranks that write nothing go along: of what is in shards they hand over theirs.
func (c *checkpoints) fill(ctx context.Context, state State) (p *checkpoint.Pending, err error) {
	if c.world.Writes() {
		p, err = checkpoint.Begin(c.dir, fmt.Sprintf("%s%d", rundir.CheckpointPrefix, state.Step))
		if err == nil {
			err = os.Mkdir(filepath.Join(p.Dir, "optimizer"), 0o755)
		}
	}
	if err = c.world.Agree(ctx, err); err != nil {
		return nil, errors.Join(err, p.Discard())
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("saving the checkpoint of step %d: %w", state.Step, err), p.Discard())
			p = nil
		}
	}()
	dtype := torch.F32
	if c.config.Checkpoint.DType == "bfloat16" {
		dtype = torch.BF16
	}
	return p, c.each(func(name string, l *train.Learner) error {
		dir, state := "", "" // nothing is written
		var err error
		if p != nil {
			dir, state = filepath.Join(p.Dir, name), moments(p.Dir, name)
			err = os.Mkdir(dir, 0o755)
		}
		if err = c.world.Agree(ctx, err); err != nil {
			return err
		}
		err = checkpoint.SaveModel(ctx, l.Model, dir, c.config.Model.Path, dtype)
		if err = c.world.Agree(ctx, err); err != nil || !c.config.Checkpoint.Optimizer {
			return err
		}
		return checkpoint.SaveOptimizer(ctx, state, l.Model, l.Optimizer)
	})
}

// commit gives a written checkpoint its name, and removes those that are no longer kept. Nobody goes on before it is there: a rank that fails
// later leaves it to resume from.
func (c *checkpoints) commit(ctx context.Context, p *checkpoint.Pending, state State) (err error) {
	if c.saved == state.Step {
		return nil
	}
	if p != nil {
		if err = p.Commit(state); err != nil {
			err = errors.Join(fmt.Errorf("saving the checkpoint of step %d: %w", state.Step, err), p.Discard())
		}
	}
	if err := c.world.Agree(ctx, err); err != nil {
		return err
	}
	c.saved, c.proof = state.Step, c.saved
	return c.prune(state)
}

// proven is told that the run has come soundly past its newest checkpoint, or ends with it: the one before it is no longer needed.
func (c *checkpoints) proven(state State) error {
	if c.proof < 0 {
		return nil
	}
	c.proof = -1
	return c.prune(state)
}

// prune removes what checkpoint.keep does not keep, but nothing that a run which is diverging may have to go back to.
func (c *checkpoints) prune(state State) error {
	if !c.world.Writes() {
		return nil
	}
	return checkpoint.Prune(c.dir, rundir.CheckpointPrefix, c.config.Checkpoint.Keep, func(step int) bool {
		return c.kept(step) || step == c.proof || step == state.BestEpoch || state.Unsound > 0 && step == state.Sound
	})
}

// kept reports whether the checkpoint of a step is saved and kept whatever run.save_every and checkpoint.keep say.
func (c *checkpoints) kept(step int) bool {
	return c.config.Checkpoint.Analysed && analysisDue(c.config.Analysis, step)
}

// sound refuses weights that cannot learn any more: a run that has diverged keeps its last good checkpoint instead of saving another.
func (c *checkpoints) sound(ctx context.Context) error {
	ones := [][]float32{{0, 1, 1, 1}}
	b := &train.Batch{Sequences: []train.Sequence{{IDs: []int32{0, 1, 2, 3}, Mask: []bool{false, true, true, true}}}, Weights: ones, Returns: ones, Values: ones}
	return c.each(func(name string, l *train.Learner) error {
		gradients := l.Gradients()
		_, err := l.Alone(b, 0, train.Likelihood(1), []train.Column{{Name: name, Into: gradients}})
		if err != nil {
			return err
		}
		if norm, err := gradients.Norm(); err != nil || math.IsNaN(norm) || math.IsInf(norm, 0) {
			return errors.Join(err, &errDiverged{fmt.Sprintf("with these weights the gradient of a few tokens has the norm %v (%s)", norm, name)})
		}
		return gradients.Zero()
	})
}
