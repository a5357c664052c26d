package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"gyre/internal/statistics"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/model/checkpoint"
	"gyre/orchestrate/run/rundir"
)

// Checkpoints saves a run and finds where it stopped.
type Checkpoints struct {
	*Session
	Dir   string // of the run
	Saved int    // step of the newest checkpoint; -1 = none
	// step of the checkpoint before it, kept until a step after the newest shows that it is good; -1 = none
	proof int
	Took  time.Duration // to save the checkpoint after the step before; 0 = none was
	// More, if not nil, writes what else belongs into a checkpoint's folder, on the rank that writes.
	More func(dir string) error
}

// find names the checkpoint to continue from; "" means to start at the beginning.
func (c *Checkpoints) find(o Options) (string, error) {
	if dir := o.ResumeFrom; dir != "" {
		if err := checkpoint.Verify(dir); err != nil {
			return "", fmt.Errorf("resuming: %w (give the global_step_N folder, not its actor)", err)
		}
		return dir, nil
	}
	if !o.Resume {
		return "", nil
	}
	newest, skipped, err := checkpoint.Latest(c.Dir, rundir.CheckpointPrefix)
	if err != nil {
		return "", fmt.Errorf("resuming: %w", err)
	}
	for _, problem := range skipped {
		c.Log.Warnf("passed over: %v", problem)
	}
	if newest != "" {
		return newest, nil
	}
	if len(skipped) > 0 {
		return "", fmt.Errorf("resuming: no intact checkpoint is left in %s: %w", c.Dir, errors.Join(skipped...))
	}
	c.Log.Infof("no checkpoint in %s yet: starting at the beginning", c.Dir)
	return "", nil
}

// each calls f for every model that learns, with its name in a checkpoint.
func (c *Checkpoints) each(f func(name string, l *train.Learner) error) error {
	err := f("actor", c.Actor)
	if err == nil && c.Critic != nil {
		err = f("critic", c.Critic)
	}
	return err
}

// moments is the file of a model's optimizer in a checkpoint.
func moments(step, name string) string {
	return filepath.Join(step, "optimizer", name+".safetensors")
}

// restore loads the optimizer moments of a checkpoint, where it has them; weights and State are already there.
func (c *Checkpoints) restore(from string, step int) error {
	c.Saved = step
	return c.each(func(name string, l *train.Learner) error {
		err := checkpoint.LoadOptimizer(moments(from, name), l.Model, l.Optimizer)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("restoring the %s's optimizer: %w", name, err)
		}
		return nil
	})
}

// Save writes global_step_N: actor (and critic) as Hugging Face directories, optimizer moments, and State in the
// manifest. It is there completely or not at all. A step that is already saved is not saved again.
func (c *Checkpoints) Save(ctx context.Context, state State) error {
	p, err := c.Write(ctx, state)
	if err != nil {
		return err
	}
	return c.Commit(ctx, p, state)
}

// Write writes everything that Save saves, under a name that nobody takes for a checkpoint; nil when the step is
// saved already, and on ranks that write nothing.
func (c *Checkpoints) Write(ctx context.Context, state State) (p *checkpoint.Pending, err error) {
	if c.Saved == state.Step {
		return nil, nil
	}
	if err := c.sound(); err != nil {
		return nil, fmt.Errorf("no checkpoint of step %d is saved: %w", state.Step, err)
	}
	begin := time.Now()
	defer func() { c.Took = time.Since(begin) }()
	if c.World.Writes() {
		if p, err = checkpoint.Begin(c.Dir, fmt.Sprintf("%s%d", rundir.CheckpointPrefix, state.Step)); err == nil {
			err = os.Mkdir(filepath.Join(p.Dir, "optimizer"), 0o755)
		}
		if err == nil && c.More != nil {
			err = c.More(p.Dir)
		}
	}
	if err = c.World.Agree(ctx, err); err == nil {
		err = c.each(func(name string, l *train.Learner) error { return c.write(ctx, p, name, l) })
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("saving the checkpoint of step %d: %w", state.Step, err), p.Discard())
	}
	return p, nil
}

// write writes one model. Ranks agree after each file: a collective of the next would wait for one that has failed.
func (c *Checkpoints) write(ctx context.Context, p *checkpoint.Pending, name string, l *train.Learner) (err error) {
	dir, state := "", ""
	if p != nil {
		dir, state = filepath.Join(p.Dir, name), moments(p.Dir, name)
		err = os.Mkdir(dir, 0o755)
	}
	if err = c.World.Agree(ctx, err); err != nil {
		return err
	}
	if err = c.World.Agree(ctx, l.Trains.Save(ctx, l.Model, dir)); err != nil || !c.Config.Checkpoint.Optimizer {
		return err
	}
	return c.World.Agree(ctx, checkpoint.SaveOptimizer(ctx, state, l.Model, l.Optimizer))
}

// Commit gives a written checkpoint its name, and removes those that are no longer kept. Nobody goes on before it is
// there: a rank that fails later leaves it to resume from.
func (c *Checkpoints) Commit(ctx context.Context, p *checkpoint.Pending, state State) (err error) {
	if c.Saved == state.Step {
		return nil
	}
	if p != nil {
		if err = p.Commit(state); err != nil {
			err = errors.Join(fmt.Errorf("saving the checkpoint of step %d: %w", state.Step, err), p.Discard())
		}
	}
	if err := c.World.Agree(ctx, err); err != nil {
		return err
	}
	c.Saved, c.proof = state.Step, c.Saved
	return c.prune(state)
}

// Proven is told that the run has come soundly past its newest checkpoint, or ends with it: the one before it is no
// longer needed.
func (c *Checkpoints) Proven(state State) error {
	if c.proof < 0 {
		return nil
	}
	c.proof = -1
	return c.prune(state)
}

// prune removes what checkpoint.keep does not keep, but nothing that a run which is diverging may have to go back to.
func (c *Checkpoints) prune(state State) error {
	if !c.World.Writes() {
		return nil
	}
	return checkpoint.Prune(c.Dir, rundir.CheckpointPrefix, c.Config.Checkpoint.Keep, func(step int) bool {
		return c.Kept(step) || step == c.proof || step == state.BestEpoch || state.Unsound > 0 && step == state.Sound
	})
}

// Kept reports whether the checkpoint of a step is saved and kept whatever run.save_every and checkpoint.keep say:
// those of analysed steps.
func (c *Checkpoints) Kept(step int) bool {
	return c.Config.Checkpoint.Analysed && AnalysisDue(c.Config.Analysis, step)
}

// AnalysisDue reports whether the gradients of a step are analysed: at steps 1, 1 + every, 1 + 2·every, …
func AnalysisDue(a config.Analysis, step int) bool { return a.Enabled && (step-1)%a.Every == 0 }

// Divergence marks a run whose losses or gradients stopped being finite.
type Divergence struct{ What string }

func (e *Divergence) Error() string { return "training diverged: " + e.What }

// Diverged tells the command line to exit with code 3.
func (e *Divergence) Diverged() bool { return true }

// sound refuses weights that cannot learn any more: a run that has diverged keeps its last good checkpoint instead of
// saving another.
func (c *Checkpoints) sound() error {
	ones := [][]float32{{0, 1, 1, 1}}
	b := &train.Batch{Sequences: []train.Sequence{{IDs: []int32{0, 1, 2, 3}, Mask: []bool{false, true, true, true}}},
		Weights: ones, Returns: ones, Values: ones}
	return c.each(func(name string, l *train.Learner) error {
		gradients := l.Gradients()
		_, err := l.Alone(b, 0, train.Likelihood(1), []train.Column{{Name: name, Into: gradients}})
		if err != nil {
			return err
		}
		norm, err := gradients.Norm()
		if err == nil && !statistics.Finite(norm) {
			err = &Divergence{What: fmt.Sprintf("with these weights the gradient of a few tokens has the norm %v (%s)",
				norm, name)}
		}
		return errors.Join(err, gradients.Zero())
	})
}
