package trainer

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"gyre/orchestrate/advantage"
	"gyre/orchestrate/checkpoint"
	"gyre/orchestrate/collapse"
	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/interrupt"
	"gyre/orchestrate/metrics"
	"gyre/orchestrate/rundir"
	"gyre/torch"
)

// State is what a step needs besides weights and optimizer moments: small, and saved in every checkpoint.
type State struct {
	Step        int                  `json:"step"` // steps done
	EarlyStop   EarlyStop            `json:"early_stop"`
	Collapse    collapse.Meter       `json:"collapse"`
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
	exact       bool // the self-test found the sampler's log-probs equal to the trainer's
}

func newRun(c *config.Config, o Options) run {
	return run{equipment: &equipment{config: c, console: o.Console}, options: o}
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
func (r *run) openModels(from string, parts experiment.Parts, actor, critic *learning) error {
	parts.Learn = true
	if from != "" {
		parts.Policy, parts.Values = from+"/actor", from+"/critic"
	}
	opened, err := r.open(parts, actor, critic)
	if err != nil {
		return err
	}
	if from != "" {
		if err := r.checkpoints.restore(from, r.state.Step); err != nil {
			return err
		}
	}
	if r.sampler != nil {
		if r.exact, err = r.proveExact(); err != nil {
			return err
		}
	}
	note, warning := opened.Note()
	r.log.Infof("%s", note)
	if warning != "" {
		r.log.Warnf("%s", warning)
	}
	return nil
}

// openDirectory opens the run directory and its metrics and finds the checkpoint to continue from ("" = start at the beginning).
func (r *run) openDirectory() (from string, err error) {
	c, o := r.config, r.options
	path := filepath.Join(c.Run.Output, c.Run.Name)
	if r.dir, err = rundir.Open(path, o.Resume); err != nil {
		return "", err
	}
	r.log = r.dir.Log
	r.log.Console = r.console
	r.checkpoints = checkpoints{equipment: r.equipment, dir: path, saved: -1}
	resolved, err := config.Resolved(c)
	if err != nil {
		return "", err
	}
	if from, err = r.checkpoints.find(o); err != nil {
		return "", err
	}
	if from != "" {
		if err := checkpoint.ReadState(from, &r.state); err != nil {
			return "", err
		}
		r.log.Infof("continuing from %s (step %d)", from, r.state.Step)
		r.warnOfChanges(resolved)
	}
	// Lines after the checkpoint are of steps that will be done again, to the same values.
	last := r.state.Step
	if from == "" {
		last = -1
	}
	switch before := r.dir.Before; {
	case o.Resume && from != "" && before != nil:
		r.firstStep = before.FirstStep
	case o.ResumeFrom != "":
		r.firstStep = r.state.Step + 1
	}
	if r.logger, err = metrics.OpenSinks(metrics.Run{
		Dir: r.dir.Path, ID: r.dir.ID, Name: c.Run.Name, Config: resolved, Loggers: c.Run.Loggers, First: r.firstStep, Last: last, Sparse: r.sparse,
	}); err != nil {
		return "", err
	}
	if r.totals, err = readTotals(r.dir.File(metrics.File)); err != nil {
		return "", err
	}
	return from, r.dir.WriteConfig(resolved)
}

// warnOfChanges says where a resumed run goes on under another configuration than it began with. More steps or epochs are no change.
func (r *run) warnOfChanges(resolved []byte) {
	before, err := os.ReadFile(r.dir.File("config.toml"))
	if err != nil {
		return // resumed from another run's checkpoint: there is nothing to compare with
	}
	changes, err := config.Changes(before, resolved)
	if err != nil {
		r.log.Warnf("config.toml of this run cannot be compared with its new configuration: %v", err)
	}
	for _, change := range changes {
		if !strings.HasPrefix(change, "run.steps = ") && !strings.HasPrefix(change, "sft.epochs = ") {
			r.log.Warnf("another configuration than before: %s", change)
		}
	}
}

// conclude fills the outcome and records in run.json how the run ended.
func (r *run) conclude(outcome Outcome, err error) (Outcome, error) {
	outcome.Steps, outcome.Dir = r.state.Step, r.dir.Path
	status, reason := "done", ""
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

// record adds numbers to a line of metrics, which may also hold tables.
func record(line map[string]any, numbers map[string]float64) {
	for name, v := range numbers {
		line[name] = v
	}
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
	if device, err := r.actor.model.Device(); err == nil {
		info.Device = device
	}
	if resolved, err := config.Resolved(c); err == nil {
		info.ConfigSHA256 = digest(resolved)
	}
	if data, err := os.ReadFile(c.Model.Path + "/config.json"); err == nil {
		info.ModelSHA256 = digest(data)
	}
	return info
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
