package whatif

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/sourcegraph/conc/pool"

	"gyre/internal/child"
	"gyre/internal/exitcode"
	"gyre/orchestrate/config"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
)

// Options of Execute.
type Options struct {
	Command string // the gyre binary
	Slots   int    // histories at a time
	Console *metrics.Console
}

// Execute runs the histories that are not there yet, each in a process of its own. One that was interrupted goes on
// from its newest checkpoint, or begins anew where it has none. When ctx ends, the runs finish their steps and save.
func Execute(ctx context.Context, list []*History, o Options) error {
	workers := pool.New().WithMaxGoroutines(max(o.Slots, 1)).WithErrors().WithContext(ctx)
	for _, h := range list {
		workers.Go(func(ctx context.Context) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := h.execute(ctx, o); err != nil {
				return fmt.Errorf("%s: %w", h.Name, err)
			}
			return nil
		})
	}
	return workers.Wait()
}

func (h *History) execute(ctx context.Context, o Options) error {
	done, err := h.begun()
	if err != nil || done {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(h.Dir()), 0o755); err != nil {
		return err
	}
	log, err := os.OpenFile(h.Dir()+".log", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	fmt.Fprintf(o.Console, "%s: steps %d to %d (%s)\n", h.Name, h.Step+1, h.Until, log.Name())
	code, err := child.Run(ctx, log, nil, o.Command, h.arguments()...)
	switch {
	case err != nil:
		return err
	case code == exitcode.StoppedEarly: // that is a result
		return nil
	case code != 0:
		return fmt.Errorf("gyre train ended with exit code %d; %s says why", code, log.Name())
	}
	return ctx.Err()
}

// begun reports whether the run is there already, whole. A directory in which nothing was saved is removed; one of
// another history is an error.
func (h *History) begun() (done bool, err error) {
	info, err := rundir.ReadInfo(h.Dir())
	if err != nil || info == nil {
		return false, err
	}
	before, err := os.ReadFile(filepath.Join(h.Dir(), "config.toml"))
	if err != nil {
		return false, err
	}
	c, err := config.Load(h.Run.File("config.toml"), h.Overrides)
	if err != nil {
		return false, err
	}
	resolved, err := config.Resolved(c)
	if err != nil {
		return false, err
	}
	changes, err := config.Compare(before, resolved)
	changes = slices.DeleteFunc(changes, func(c config.Change) bool { return c.Key == "model.dtype" }) // what auto came to
	first := 0
	if h.From != "" {
		first = h.Step + 1
	}
	changes = append(changes, info.FileChanges(c.Files(), h.Step)...)
	if err != nil || len(changes) > 0 || info.FirstStep != first {
		return false, errors.Join(err, fmt.Errorf("%s holds another history: give this one a name of its own (--name), or "+
			"remove the folder", h.Dir()))
	}
	if info.Status == "stopped_early" || (info.Status == "paused" || info.Status == "done") && info.Step >= h.Until {
		return true, nil
	}
	if left := (&rundir.Run{Dir: h.Dir()}).Checkpoints(); len(left) == 0 {
		return false, os.RemoveAll(h.Dir())
	}
	return false, nil
}

// arguments are those of gyre train.
func (h *History) arguments() []string {
	args := append([]string{"train", h.Run.File("config.toml")}, h.Overrides...)
	args = append(args, fmt.Sprintf("--until=%d", h.Until))
	switch {
	case len((&rundir.Run{Dir: h.Dir()}).Checkpoints()) > 0 || h.From == "":
		args = append(args, "--resume")
	default:
		args = append(args, "--resume-from="+h.From)
	}
	if h.Run.Config.Rollout.Staleness > 0 {
		args = append(args, "--replay-schedule="+h.Run.Dir, "--diverging")
	}
	if info := h.Run.Info; info != nil && info.Ranks > 1 {
		args = append(args, fmt.Sprintf("--ranks=%d", info.Ranks))
	}
	return args
}
