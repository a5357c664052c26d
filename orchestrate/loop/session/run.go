package session

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/collapse"
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
	// ReplaySchedule is a run whose schedule is followed: which weights draw which tokens.
	ReplaySchedule string
	Diverging      bool // the tokens may be others than in that run
	Until          int  // pause after this step, saved and validated: --resume goes on; 0 = go to the end
	Console        *metrics.Console
	World          *ranks.World // the processes of the run; [ranks.Alone] unless it is given
	Tenant         *Tenant      // of the process, which runs others too; nil = it runs this one
}

// Outcome says how a run ended.
type Outcome struct {
	Steps int
	Dir   string
	Early *collapse.StoppedEarly // not nil when a collapse rule ended it
}

// Training is what reinforcement learning and supervised fine-tuning have in common: a directory, models that learn,
// and how far they have come.
type Training struct {
	*Session
	Options     Options
	Dir         *rundir.Dir  // nil on ranks that write nothing
	Logger      metrics.Sink // of the run's metrics
	State       State
	Checkpoints Checkpoints
	Totals      Totals
	Total       int  // steps or epochs in all
	Until       int  // the last one that is done now: Total, unless the run is to pause
	Sparse      bool // not every step has a line of metrics
	Finished    bool // they are done already: nothing is opened
	FirstStep   int  // the first that this directory's metrics can have
	Exact       bool // the self-test found the sampler's log-probs equal to the trainer's

	changes []config.Change   // of the configuration, by this resumption and those before it
	files   map[string]string // that the configuration names, with their SHA-256 at the start
}

// NewTraining is a run of so many steps or epochs, of which nothing is opened.
func NewTraining(c *config.Config, o Options, total int) *Training {
	s, until := New(c, o.Console, o.World), total
	if o.Until > 0 {
		until = min(o.Until, total)
	}
	s.Tenant = o.Tenant
	dir := filepath.Join(c.Run.Output, c.Run.Name)
	return &Training{Session: s, Options: o, Total: total, Until: until,
		Checkpoints: Checkpoints{Session: s, Dir: dir, Saved: -1, proof: -1}}
}

// Outcome is how far the run has come.
func (r *Training) Outcome() Outcome { return Outcome{Steps: r.State.Step, Dir: r.Checkpoints.Dir} }

// Started records in run.json that the run is going on.
func (r *Training) Started() error {
	if !r.World.Writes() {
		return nil
	}
	return r.Dir.WriteInfo(r.info("running", ""))
}

// File is a path in the run's directory; "" on ranks that write nothing.
func (r *Training) File(name string) string {
	if !r.World.Writes() {
		return ""
	}
	return r.Dir.File(name)
}

// Close frees everything. It may be called on a half-opened run.
func (r *Training) Close() {
	r.Session.Close()
	if r.Logger != nil {
		r.Logger.Close()
	}
	if r.Dir != nil {
		r.Dir.Close()
	}
}

// Abandon closes a run that could not start, and leaves no directory of it.
func (r *Training) Abandon(err error) error {
	if r.Dir != nil {
		err = errors.Join(err, r.Dir.Discard())
	}
	r.Close()
	return err
}

// OpenModels loads models and sampler, those that learn from the checkpoint when there is one and from their
// configured directories otherwise, and proves the sampler equal to the trainer. The reference is always the
// configured one (or the initial policy): it never moves.
func (r *Training) OpenModels(ctx context.Context, from string, parts experiment.Parts, actor,
	critic *train.Optimization) error {
	parts.Learn = true
	parts = parts.Continue(from)
	opened, err := r.Open(ctx, parts, actor, critic)
	if err != nil {
		return err
	}
	if err := r.sameBase(); err != nil {
		return err
	}
	if from != "" {
		if err := r.Checkpoints.restore(from, r.State.Step); err != nil {
			return err
		}
	}
	if parts.Play {
		if r.Exact, err = r.ProveExact(ctx, r.State.SamplerGap); err != nil {
			return err
		}
	}
	note, warning := opened.Note()
	r.Log.Infof("%s", note)
	if warning != "" {
		r.Log.Warnf("%s", warning)
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

// OpenDirectory opens the run directory and its metrics and finds the checkpoint to continue from ("" = start at the
// beginning). Only rank 0 has the directory; the others learn what it found.
func (r *Training) OpenDirectory(ctx context.Context) (from string, err error) {
	var found beginning
	if found.Type, found.Why, err = r.agreed(ctx, ""); err != nil {
		return "", err
	}
	if r.World.Writes() {
		if err = r.holdDirectory(&found); err != nil {
			return "", err
		}
		found.FirstStep = r.FirstStep
	}
	if r.World.Processes() > 1 {
		r.Log.Infof("%d ranks, started by %s", r.World.Size(), r.World.Launcher)
	}
	if found, err = ranks.Broadcast(ctx, r.World, found); err != nil || r.World.Writes() {
		return found.From, err
	}
	r.FirstStep, r.Logger = found.FirstStep, metrics.Sinks{}
	r.useType(found.Type, found.Why)
	if found.From != "" {
		if err := checkpoint.ReadState(found.From, &r.State); err != nil {
			return "", err
		}
	}
	r.Finished = r.State.Step >= r.Until
	return found.From, nil
}

// holdDirectory fills in where the run goes on, and in which type.
func (r *Training) holdDirectory(found *beginning) (err error) {
	o := r.Options
	path := r.Checkpoints.Dir
	if r.Dir, err = rundir.Open(path, o.Resume); err != nil {
		return err
	}
	r.Log = r.Dir.Log
	r.Log.Console = r.Console
	if found.From, err = r.Checkpoints.find(o); err != nil {
		return err
	}
	if on, why, err := experiment.Settle(experiment.Wished(r.Config), found.From); err != nil {
		return err
	} else if found.From != "" && why != "" {
		found.Type, found.Why = on.Compute, why
	}
	r.useType(found.Type, found.Why)
	c, from := r.Config, found.From
	resolved, err := config.Resolved(c)
	if err != nil {
		return err
	}
	if err := r.continueFrom(from, resolved); err != nil {
		return err
	}
	if r.Finished = r.State.Step >= r.Until; r.Finished {
		return r.markDone()
	}
	// Lines after the checkpoint are of steps that will be done again, to the same values.
	last := -1
	if from != "" {
		if last = r.State.Step; r.Sparse {
			last = int(r.State.ActorSteps)
		}
	}
	switch before := r.Dir.Before; {
	case o.Resume && from != "" && before != nil:
		r.FirstStep = before.FirstStep
	case o.ResumeFrom != "":
		r.FirstStep = r.State.Step + 1
	}
	if r.Logger, err = metrics.OpenSinks(metrics.Run{
		Dir: r.Dir.Path, ID: r.Dir.ID, Name: c.Run.Name, Project: c.Run.Project, Config: resolved,
		Loggers: c.Run.Loggers,
		Warn:    r.Dir.Log.Warnf,
		First:   r.FirstStep, Last: last, Sparse: r.Sparse,
	}); err != nil {
		return err
	}
	if r.Totals, err = readTotals(r.Dir.File(metrics.File)); err != nil {
		return err
	}
	if err := r.keepFiles(from); err != nil {
		return err
	}
	return r.Dir.WriteConfig(resolved)
}

// keepFiles records the user's files that the run starts with, and says in a line which a run that goes on from a
// checkpoint, its own or another run's, finds changed.
func (r *Training) keepFiles(from string) error {
	r.files = r.Config.Files()
	before := r.Dir.Before
	if r.Options.ResumeFrom != "" {
		var err error
		if before, err = rundir.ReadInfo(filepath.Dir(filepath.Clean(from))); err != nil {
			return err
		}
	}
	if from != "" {
		changes := before.FileChanges(r.files, r.State.Step)
		if len(changes) > 0 {
			var list []string
			for _, c := range changes {
				list = append(list, strings.TrimPrefix(c.String(), rundir.FileKey))
			}
			r.Log.Warnf("other files than in the steps before: %s", strings.Join(list, "; "))
		}
		if err := r.Dir.KeepCopies(changes); err != nil {
			return err
		}
		r.changes = append(r.changes, changes...)
	}
	return r.Dir.CopyFiles(r.files)
}

// Conclude fills the outcome and records in run.json how the run ended.
func (r *Training) Conclude(outcome Outcome, err error) (Outcome, error) {
	outcome.Steps, outcome.Dir, err = r.State.Step, r.Checkpoints.Dir, r.World.Cause(err)
	if !r.World.Writes() {
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
	if gone := r.Dir.Held(); gone != nil { // nothing is written into another's directory
		if !errors.Is(err, rundir.ErrGone) {
			err = errors.Join(gone, err)
		}
		return outcome, err
	}
	if reason != "" {
		r.Log.File(fmt.Sprintf("%s after step %d: %s", strings.ReplaceAll(status, "_", " "), r.State.Step, reason))
	}
	return outcome, errors.Join(err, r.Dir.WriteInfo(r.info(status, reason)))
}

// goal is the status of a run that did what it was asked to.
func (r *Training) goal() string {
	if r.Until < r.Total && r.State.Step >= r.Until {
		return "paused"
	}
	return "done"
}

// Stopping gives the signal that asks the run to stop, nil while there is none. Ranks agree on it: it reaches them at
// different moments, and some launchers pass it to one of them only.
func (r *Training) Stopping(ctx context.Context, requested <-chan struct{}) (error, error) {
	number := 0.0
	select {
	case <-requested:
		if mine, ok := errors.AsType[*interrupt.Error](interrupt.Cause(ctx)); ok {
			number = float64(mine.Signal)
		}
	default:
	}
	number, err := r.World.Max(ctx, number)
	if err != nil || number == 0 {
		return nil, err
	}
	return &interrupt.Error{Signal: syscall.Signal(number)}, nil
}

// info describes the run for run.json.
func (r *Training) info(status, reason string) rundir.Info {
	c := r.Config
	info := rundir.Info{
		Name: c.Run.Name, Status: status, Reason: reason, FirstStep: r.FirstStep, Step: r.State.Step,
		Updated: time.Now().UTC().Truncate(time.Second),
		Gyre:    revision(), Engine: torch.BuildInfo(), Go: runtime.Version(), Platform: runtime.GOOS + "/" +
			runtime.GOARCH,
		Threads: torch.Threads(), Seed: c.Run.Seed, EnvSeed: c.Run.EnvSeed, Model: c.Model.Path, Exact: r.Exact,
		Replay: r.Options.Replay, PeakRSS: torch.PeakRSS(), Changes: r.changes,
	}
	if device, err := r.Actor.Model.Device(); err == nil {
		info.Device = device
	}
	if r.World.Processes() > 1 {
		info.Ranks, info.Shard = r.World.Processes(), r.shard
	}
	info.Files = r.files
	if resolved, err := config.Resolved(c); err == nil {
		info.ConfigSHA256 = digest(resolved)
	}
	if data, err := os.ReadFile(c.Model.Path + "/config.json"); err == nil {
		info.ModelSHA256 = digest(data)
	}
	return info
}

// Record logs a line of metrics under a step, out of so many.
func (r *Training) Record(step, of int, line metrics.Line) error {
	if r.Dir != nil {
		if err := r.Dir.Held(); err != nil {
			return err
		}
	}
	if err := r.Logger.Log(step, line); err != nil {
		return fmt.Errorf("metrics of step %d: %w", step, err)
	}
	r.Console.Step(step, of, line)
	r.Log.File(metrics.StepText(step, of, line))
	return nil
}

func digest(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

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
