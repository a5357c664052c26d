package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/run/metrics"
)

// window plays batches before their steps: beside the trainer (rollout.Window), or on ranks of their own (Samplers).
type window interface {
	Next(ctx context.Context, step, batch int) ([]*episode.Episode, rollout.Stats, error)
	// Fresh tells whether all keys and values under way were computed again at the present step's beginning.
	Fresh() bool
	// Spent is what has happened beside the update since the last call.
	Spent() rollout.Background
	// UnderWay is what has begun, which goes on with the next step. All ranks that train call it.
	UnderWay(ctx context.Context) ([]rollout.UnderWay, error)
	Close() error
}

// ahead plays batches before their steps.
type ahead struct {
	*played
	window window
	keeps  bool // keys and values of older weights, with rollout.on_update = "keep"
}

// openAhead opens the window of a run with what its checkpoint has under way. It takes over own.
func openAhead(ctx context.Context, own *played) (_ Source, err error) {
	r := own.Run
	defer func() {
		if err != nil {
			err = errors.Join(err, own.Close())
		}
	}()
	options, err := windowOptions(r.Config, r.Options, own.shares.decided, beginning{Step: r.State.Step, Batch: r.State.NextBatch()},
		r.Samplers.count)
	if err != nil {
		return nil, err
	}
	a := &ahead{played: own, keeps: options.Keep}
	if r.Samplers.count > 0 {
		a.window = r.Samplers
		return a, r.Samplers.begin(ctx, r, options, own.shares.decided)
	}
	if n := r.World.Size(); n > 1 {
		return nil, fmt.Errorf("rollout.staleness and --replay-schedule: this run has %d ranks, which all train: set "+
			"fsdp.samplers to how many of them sample instead, or take one process", n)
	}
	w, err := rollout.NewWindow(ctx, r.Sampler.Player, options)
	if err != nil {
		return nil, err
	}
	a.window, r.Rollouts.Window = w, w
	turns := &turns{w, r.Clock}
	r.Actor.Colocated = turns
	if r.Reference != nil {
		r.Reference.Colocated = turns
	}
	under, err := readUnderWay(r.From)
	if err == nil {
		err = w.Restore(under)
	}
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return a, nil
}

// Next implements Source.
func (a *ahead) Next(ctx context.Context, step int, line metrics.Line) (Batch, error) {
	b, err := a.next(step, line, func(batch int, label string) ([]*episode.Episode, rollout.Stats, error) {
		episodes, stats, err := a.window.Next(ctx, step, batch)
		if err == nil {
			a.Warn(stats, label)
		}
		return episodes, stats, err
	})
	if err != nil {
		return b, err
	}
	l := &a.schedule.line
	l.Fresh = a.keeps && a.window.Fresh()
	a.Clock.Add("wait_trainer", time.Duration((l.Closed-l.Begun)*float64(time.Second)))
	b.Provenance = Provenance{Weights: Present, Exact: a.Exact}
	if a.Config.Rollout.Staleness > 0 {
		b.Weights = Older
	}
	return b, nil
}

// Updated implements Source.
func (a *ahead) Updated(line metrics.Line) error {
	spent, l := a.window.Spent(), &a.schedule.line
	a.Clock.Add("gen", spent.Sampled)
	a.Clock.Add("wait_sampler", spent.Blocked)
	l.Sampling.During, l.Waiting.During = spent.Sampled.Seconds(), spent.Blocked.Seconds()
	return a.played.Updated(line)
}

// UnderWay implements Source.
func (a *ahead) UnderWay(ctx context.Context) (write func(dir string) error, err error) {
	under, err := a.window.UnderWay(ctx)
	return func(dir string) error {
		return atomicfile.Write(filepath.Join(dir, underWayFile), func(w io.Writer) error {
			return json.NewEncoder(w).Encode(under)
		})
	}, err
}

// Close implements Source.
func (a *ahead) Close() error { return errors.Join(a.window.Close(), a.played.Close()) }

// turns lets a window use the trainer's models between their passes. Their time is no part of the trainer's phases.
type turns struct {
	window *rollout.Window
	clock  *session.Clock
}

// Between implements train.Colocated.
func (t *turns) Between(ctx context.Context) error {
	return t.clock.Aside(func() error { return t.window.Between(ctx) })
}

// Changing implements train.Colocated.
func (t *turns) Changing() error { return t.clock.Aside(t.window.Changing) }

// underWayFile is the file of a checkpoint with the episodes that had begun.
const underWayFile = "under_way.json"

// readUnderWay reads what a checkpoint has under way; "" and one of a run that played no batch ahead have nothing.
func readUnderWay(from string) (all []rollout.UnderWay, err error) {
	if from == "" {
		return nil, nil
	}
	path := filepath.Join(from, underWayFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}
