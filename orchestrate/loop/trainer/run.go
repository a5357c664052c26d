package trainer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/model/checkpoint"
	"gyre/orchestrate/run/interrupt"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
	"gyre/torch"
)

// Options are the parts of a run that are not in its configuration.
type Options struct {
	Resume     bool   // continue the run directory's newest checkpoint, or start when there is none
	ResumeFrom string // continue this global_step_N directory instead
	Replay     string // JSONL of episodes to update on instead of playing
	Until      int    // pause after this step, saved and validated: --resume goes on; 0 = go to the end
	Console    *metrics.Console
	World      *ranks.World // the processes of the run; nil = this one
}

// Outcome says how a run ended.
type Outcome struct {
	Steps int
	Dir   string
	Early *StoppedEarly // not nil when a collapse rule ended it
}

// run is what reinforcement learning and supervised fine-tuning have in common: a directory, models that learn, and how far it has come.
type run struct {
	*equipment
	options     Options
	dir         *rundir.Dir
	logger      metrics.Sink
	state       State
	checkpoints checkpoints
	firstStep   int  // the first step that this directory's metrics can have
	sparse      bool // not every step has a line of metrics
	totals      totals
	data        map[string]string // files of data, with their SHA-256; nil before they are read
	total       int               // steps or epochs in all
	until       int               // the last one that is done now: total, unless the run is to pause
	finished    bool              // they are done already: nothing is opened
	exact       bool              // the self-test found the sampler's log-probs equal to the trainer's
}

func newRun(c *config.Config, o Options, total int) run {
	e := &equipment{config: c, console: o.Console, log: &rundir.Log{Console: o.Console}, world: o.World}
	until := total
	if o.Until > 0 {
		until = min(o.Until, total)
	}
	dir := filepath.Join(c.Run.Output, c.Run.Name)
	return run{equipment: e, options: o, total: total, until: until, checkpoints: checkpoints{equipment: e, dir: dir, saved: -1, proof: -1}}
}

// outcome is how far the run has come.
func (r *run) outcome() Outcome { return Outcome{Steps: r.state.Step, Dir: r.checkpoints.dir} }

// started records in run.json that the run is going on.
func (r *run) started() error {
	if !r.world.Writes() {
		return nil
	}
	return r.dir.WriteInfo(r.info("running", ""))
}

// file is a path in the run's directory; "" on ranks that write nothing.
func (r *run) file(name string) string {
	if !r.world.Writes() {
		return ""
	}
	return r.dir.File(name)
}

// Close frees everything. It may be called on a half-opened run.
func (r *run) Close() {
	r.equipment.close()
	if r.logger != nil {
		r.logger.Close()
	}
	if r.dir != nil {
		r.dir.Close()
	}
}

// abandon closes a run that could not start, and leaves no directory of it.
func (r *run) abandon(err error) error {
	if r.dir != nil {
		err = errors.Join(err, r.dir.Discard())
	}
	r.Close()
	return err
}

// openModels loads models and sampler, those that learn from the checkpoint when there is one and from their configured directories
// otherwise, and proves the sampler equal to the trainer. The reference is always the configured one (or the initial policy): it never moves.
func (r *run) openModels(ctx context.Context, from string, parts experiment.Parts, actor, critic *train.Optimization) error {
	parts.Learn = true
	parts = parts.Continue(from)
	opened, err := r.open(ctx, parts, actor, critic)
	if err != nil {
		return err
	}
	if from != "" {
		if err := r.checkpoints.restore(from, r.state.Step); err != nil {
			return err
		}
	}
	if r.sampler != nil {
		if r.exact, err = r.proveExact(ctx, r.state.SamplerGap); err != nil {
			return err
		}
	}
	note, warning := opened.Note()
	r.log.Infof("%s", note)
	if warning != "" {
		r.log.Warnf("%s", warning)
	}
	if r.sampler != nil {
		for _, form := range r.config.ReplyForms() {
			r.log.Infof("replies: %s", form)
		}
	}
	return nil
}

// beginning is what rank 0 has found out about a run.
type beginning struct {
	From      string // the checkpoint to continue from; "" = start at the beginning
	FirstStep int
	Type      torch.Compute // of the arithmetic, and why where nobody chose it
	Why       string
}

// openDirectory opens the run directory and its metrics and finds the checkpoint to continue from ("" = start at the beginning). Only rank 0 has
// the directory; the others learn what it found.
func (r *run) openDirectory(ctx context.Context) (from string, err error) {
	var found beginning
	if found.Type, found.Why, err = r.agreed(ctx, ""); err != nil {
		return "", err
	}
	if r.world.Writes() {
		if err = r.holdDirectory(&found); err != nil {
			return "", err
		}
		found.FirstStep = r.firstStep
	}
	if r.world == nil {
		return found.From, nil
	}
	r.log.Infof("%s", r.world.Describe())
	if found, err = ranks.Tell(ctx, r.world, found); err != nil || r.world.Writes() {
		return found.From, err
	}
	r.firstStep, r.logger = found.FirstStep, metrics.Discard{}
	r.useType(found.Type, found.Why)
	if found.From != "" {
		if err := checkpoint.ReadState(found.From, &r.state); err != nil {
			return "", err
		}
	}
	r.finished = r.state.Step >= r.until
	return found.From, nil
}

// holdDirectory fills in where the run goes on, and in which type.
func (r *run) holdDirectory(found *beginning) (err error) {
	o := r.options
	path := r.checkpoints.dir
	if r.dir, err = rundir.Open(path, o.Resume); err != nil {
		return err
	}
	r.log = r.dir.Log
	r.log.Console = r.console
	if found.From, err = r.checkpoints.find(o); err != nil {
		return err
	}
	if on, why, err := experiment.Settle(experiment.Wished(r.config), found.From); err != nil {
		return err
	} else if found.From != "" && why != "" {
		found.Type, found.Why = on.Compute, why
	}
	r.useType(found.Type, found.Why)
	c, from := r.config, found.From
	resolved, err := config.Resolved(c)
	if err != nil {
		return err
	}
	if err := r.continueFrom(from, resolved); err != nil {
		return err
	}
	if r.finished = r.state.Step >= r.until; r.finished {
		return r.markDone()
	}
	// Lines after the checkpoint are of steps that will be done again, to the same values.
	last := -1
	if from != "" {
		if last = r.state.Step; r.sparse {
			last = int(r.state.ActorSteps)
		}
	}
	switch before := r.dir.Before; {
	case o.Resume && from != "" && before != nil:
		r.firstStep = before.FirstStep
	case o.ResumeFrom != "":
		r.firstStep = r.state.Step + 1
	}
	if r.logger, err = metrics.OpenSinks(metrics.Run{
		Dir: r.dir.Path, ID: r.dir.ID, Name: c.Run.Name, Config: resolved, Loggers: c.Run.Loggers, Warn: r.dir.Log.Warnf, First: r.firstStep, Last: last, Sparse: r.sparse,
	}); err != nil {
		return err
	}
	if r.totals, err = readTotals(r.dir.File(metrics.File)); err != nil {
		return err
	}
	return r.dir.WriteConfig(resolved)
}

// conclude fills the outcome and records in run.json how the run ended.
func (r *run) conclude(outcome Outcome, err error) (Outcome, error) {
	outcome.Steps, outcome.Dir, err = r.state.Step, r.checkpoints.dir, r.world.Cause(err)
	if !r.world.Writes() {
		return outcome, err
	}
	status, reason := r.goal(), ""
	var interrupted *interrupt.Error
	switch {
	case outcome.Early != nil:
		status, reason = "stopped_early", outcome.Early.Reason
	case errors.As(err, &interrupted):
		status, reason = "interrupted", interrupted.Error()
	case err != nil:
		status, reason = "failed", err.Error()
	}
	return outcome, errors.Join(err, r.dir.WriteInfo(r.info(status, reason)))
}

// goal is the status of a run that did what it was asked to.
func (r *run) goal() string {
	if r.until < r.total && r.state.Step >= r.until {
		return "paused"
	}
	return "done"
}

// stopping gives the signal that asks the run to stop, nil while there is none. Ranks agree on it: it reaches them at different moments, and
// some launchers pass it to one of them only.
func (r *run) stopping(ctx context.Context, requested <-chan struct{}) (error, error) {
	var mine *interrupt.Error
	select {
	case <-requested:
		errors.As(interrupt.Cause(ctx), &mine)
	default:
	}
	if r.world == nil {
		if mine == nil {
			return nil, nil
		}
		return mine, nil
	}
	number := 0.0
	if mine != nil {
		number = float64(mine.Signal)
	}
	number, err := r.world.Max(ctx, number)
	if err != nil || number == 0 {
		return nil, err
	}
	return &interrupt.Error{Signal: syscall.Signal(number)}, nil
}

// info describes the run for run.json.
func (r *run) info(status, reason string) rundir.Info {
	c := r.config
	info := rundir.Info{
		Name: c.Run.Name, Status: status, Reason: reason, FirstStep: r.firstStep, Step: r.state.Step, Updated: time.Now().UTC().Truncate(time.Second),
		Gyre: revision(), Engine: torch.BuildInfo(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Threads: torch.Threads(), Seed: c.Run.Seed, EnvSeed: c.Run.EnvSeed, Model: c.Model.Path, Exact: r.exact,
		Replay: r.options.Replay, PeakRSS: torch.PeakRSS(),
	}
	if device, err := r.actor.Model.Device(); err == nil {
		info.Device = device
	}
	info.Data = r.dataFiles()
	if resolved, err := config.Resolved(c); err == nil {
		info.ConfigSHA256 = digest(resolved)
	}
	if data, err := os.ReadFile(c.Model.Path + "/config.json"); err == nil {
		info.ModelSHA256 = digest(data)
	}
	return info
}

// dataFiles are the files that the environments' options name, as they were at the start of the run.
func (r *run) dataFiles() map[string]string {
	if r.data != nil {
		return r.data
	}
	r.data = map[string]string{}
	for _, e := range slices.Concat(r.config.Envs, r.config.Validation.Envs) {
		for _, key := range []string{"file", "problems", "levels"} {
			path, _ := e.Options[key].(string)
			if path == "" || r.data[path] != "" {
				continue
			}
			if content, err := os.ReadFile(path); err == nil {
				r.data[path] = digest(content)
			}
		}
	}
	return r.data
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func revision() string {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range build.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return build.Main.Version
}
