// Package demo trains and analyses a small Sokoban agent, from nothing to a report, by the program's own commands, and
// shows one held-out level played before and after training. It continues where an earlier demo stopped.
package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"gyre/configs"
	"gyre/internal/atomicfile"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/run/rundir"
	"gyre/orchestrate/study/episodes"
)

// The files of the demo, below its folder.
const (
	configFile = "configs/demo.toml"
	model      = "models/demo-policy"
	run        = "runs/demo"
	warmStart  = "runs/demo-sft"
	analyses   = "runs/demo-analysis"
)

// Demo runs the commands of one demo.
type Demo struct {
	Program        string // the gyre executable
	Dir            string // where configs, models and runs lie
	Stdout, Stderr io.Writer
	Overrides      []string // key=value, for every command that reads the configuration: a smaller demo
}

// Run goes through all steps. Interrupted, it may be run again.
func (d *Demo) Run(ctx context.Context) error {
	begin := time.Now()
	if err := d.writeConfig(); err != nil {
		return err
	}
	d.title("1/6  a policy of 0.2 million parameters, and a tokenizer of its own")
	if !d.exists(model, "config.json") {
		if err := d.gyre(ctx, "model", "init", model, "--family", "qwen2", "--hidden", "64", "--layers", "3", "--heads",
			"4", "--kv-heads", "4",
			"--intermediate", "256", "--std", "0.12"); err != nil {
			return err
		}
	}
	if err := d.gyre(ctx, "model", "info", model); err != nil {
		return err
	}
	d.title("2/6  the levels: what training, demonstrations and validation begin with, and what random moves reach")
	overlap, random, err := d.levels(ctx)
	if err != nil {
		return err
	}
	before, after, err := d.train(ctx)
	if err != nil {
		return err
	}
	d.title("5/6  where the gradient comes from: groups sorted by the standard deviation of their rewards, before " +
		"and after training")
	if err := d.analyse(ctx, before, after); err != nil {
		return err
	}
	for _, args := range [][]string{{"plot", run}, {"plot", warmStart}, {"report", run}} {
		if err := d.gyre(ctx, args...); err != nil {
			return err
		}
	}
	d.title(fmt.Sprintf("6/6  what was learned (%s)", time.Since(begin).Round(time.Second)))
	if err := d.gyre(ctx, "plot", run, "--terminal"); err != nil {
		return err
	}
	fmt.Fprintf(d.Stdout, "  random moves    %s\n\n", random)
	for line := range strings.Lines(text.WrapSoft(overlap, 80)) {
		fmt.Fprintln(d.Stdout, strings.TrimSpace(line))
	}
	fmt.Fprintln(d.Stdout)
	if err := d.boards(ctx, before, after); err != nil {
		return err
	}
	fmt.Fprintf(d.Stdout, closing, before, after)
	return nil
}

// levels tells how much the sets of levels have in common, and what random moves reach on them.
func (d *Demo) levels(ctx context.Context) (overlap, random string, err error) {
	if overlap, err = d.output(ctx, d.with("env", "overlap", configFile)...); err != nil {
		return "", "", err
	}
	if random, err = d.output(ctx, d.with("eval", configFile, "--random")...); err != nil {
		return "", "", err
	}
	random = lineOf(random, "success")
	fmt.Fprintf(d.Stdout, "%s\n%s\n", overlap, random)
	return overlap, random, nil
}

// train goes from the untrained policy to one before reinforcement learning and one after it.
func (d *Demo) train(ctx context.Context) (before, after string, err error) {
	d.title("3/6  warm start: supervised fine-tuning on a teacher of shortest paths who errs in seven turns of ten")
	if len(d.checkpoints(warmStart)) == 0 {
		if err := os.RemoveAll(filepath.Join(d.Dir, warmStart)); err != nil { // an interrupted warm start is repeated
			return "", "", err
		}
		if err := d.gyre(ctx, d.with("sft", configFile, "run.name=demo-sft", "run.validate_every=0")...); err != nil {
			return "", "", err
		}
	}
	before = d.checkpoints(warmStart)[0] + "/actor"

	d.title("4/6  reinforcement learning: GRPO, groups without reward variance filtered out")
	if err := d.gyre(ctx, d.with("train", configFile, "model.path="+before, "--resume")...); err != nil {
		return "", "", err
	}
	steps := d.checkpoints(run)
	if len(steps) == 0 {
		return "", "", fmt.Errorf("%s has no checkpoint after training", filepath.Join(d.Dir, run))
	}
	return before, steps[len(steps)-1] + "/actor", nil
}

const closing = `
  runs/demo/report.html             the run on one page
  runs/demo/plots/training.png      the curves
  runs/demo-analysis/signal.png     the gradient by reward variance, before and after training
  runs/demo/metrics.jsonl           every metric of every step; runs/demo/rollouts/ has every episode
  %-32[2]s  the trained policy, a Hugging Face directory

docs/demo.md explains what was printed, docs/signal.md the figures (installed: in share/gyre/docs).

To go on:
  gyre eval runs/demo validation.seed=99      other held-out levels
  gyre analyze runs/demo                      the gradients of the trained policy again
  gyre train configs/demo.toml model.path=%[1]s run.name=no-filter filter.strategy=none
`

// moments name the policies that training begins and ends with.
func moments(before, after string) []struct{ name, policy string } {
	return []struct{ name, policy string }{{"before", before}, {"after", after}}
}

// analyse measures the gradient before and after training, for both forms of the advantage, and draws it.
func (d *Demo) analyse(ctx context.Context, before, after string) error {
	draw := []string{"plot", "signal", "--title", "Demo: where the gradient of the task comes from", "--out",
		analyses + "/signal.png"}
	for _, form := range []struct{ key, name string }{
		{"false", "centred returns"}, {"true", "returns divided by their std"},
	} {
		for _, moment := range moments(before, after) {
			out := fmt.Sprintf("%s/%s-norm_by_std-%s", analyses, moment.name, form.key)
			draw = append(draw, fmt.Sprintf("%s/%s training=%s", form.name, moment.name, out))
			if d.exists(out, "metrics.jsonl") {
				continue
			}
			if err := d.gyre(ctx, d.with("analyze", configFile, "model.path="+moment.policy,
				"algorithm.norm_by_std="+form.key, "algorithm.entropy_coef=0", "filter.strategy=none",
				"--output", out)...); err != nil {
				return err
			}
		}
	}
	_, err := d.output(ctx, draw...) // what it says of the figure in sentences is long
	return err
}

// writeConfig puts the configuration where the demo's commands, and the reader's own, look for it. A file that is
// there stays.
func (d *Demo) writeConfig() error {
	if d.exists(configFile) {
		return nil
	}
	return atomicfile.Write(filepath.Join(d.Dir, configFile), func(w io.Writer) error {
		_, err := w.Write(configs.Demo)
		return err
	})
}

func (d *Demo) exists(path ...string) bool {
	return atomicfile.Exists(append([]string{d.Dir}, path...)...)
}

// checkpoints are a run's global_step_N folders, relative to the demo's, the newest last.
func (d *Demo) checkpoints(run string) (found []string) {
	for _, c := range (&rundir.Run{Dir: filepath.Join(d.Dir, run)}).Checkpoints() {
		found = append(found, run+"/"+filepath.Base(c.Path))
	}
	return found
}

func (d *Demo) title(text string) { fmt.Fprintf(d.Stdout, "\n== %s\n", text) }

// with adds the overrides to a command that reads the configuration.
func (d *Demo) with(args ...string) []string { return append(args, d.Overrides...) }

// gyre runs a command of the program.
func (d *Demo) gyre(ctx context.Context, args ...string) error { return d.start(ctx, d.Stdout, args) }

// output runs a command and gives what it writes to its standard output.
func (d *Demo) output(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	err := d.start(ctx, &out, args)
	return strings.TrimSpace(out.String()), err
}

func (d *Demo) start(ctx context.Context, stdout io.Writer, args []string) error {
	command := exec.CommandContext(ctx, d.Program, args...)
	command.Dir, command.Stdout, command.Stderr = d.Dir, stdout, d.Stderr
	// Ctrl-C reaches the command once, through Cancel, and not also from the terminal: a second one would end it
	// without a checkpoint.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	if err := command.Run(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return &StepError{Args: args, Err: err}
	}
	return nil
}

// StepError is a command of the demo that failed; it has told why on its standard error.
type StepError struct {
	Args []string
	Err  error
}

func (e *StepError) Error() string {
	return fmt.Sprintf("gyre %s: %v", strings.Join(e.Args, " "), e.Err)
}
func (e *StepError) Unwrap() error { return e.Err }

// ExitCode is the command's.
func (e *StepError) ExitCode() int {
	if exit, ok := errors.AsType[*exec.ExitError](e.Err); ok {
		return exit.ExitCode()
	}
	return 1
}

// lineOf is the rest of the first line that begins with a word.
func lineOf(text, word string) string {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 1 &&
			(fields[0] == word || strings.HasSuffix(fields[0], "/"+word)) {
			return strings.Join(fields[1:], " ")
		}
	}
	return ""
}

// shownLevels is how many held-out levels are played to find one that training has changed.
const shownLevels = 32

// boards plays some held-out levels with both policies and draws one that only the trained policy solves.
func (d *Demo) boards(ctx context.Context, before, after string) error {
	var played [2][]*episode.Episode
	for i, moment := range moments(before, after) {
		out := analyses + "/levels-" + moment.name + ".jsonl"
		if _, err := d.output(ctx, d.with("eval", configFile, "--checkpoint", moment.policy, "--output", out,
			fmt.Sprintf("validation.envs.0.groups=%d", shownLevels))...); err != nil {
			return err
		}
		var err error
		if played[i], err = episode.ReadFile(filepath.Join(d.Dir, out)); err != nil {
			return err
		}
	}
	chosen := 0
	for i := range min(len(played[0]), len(played[1])) {
		if !played[0][i].Success && played[1][i].Success {
			chosen = i
			break
		}
	}
	c, err := config.Load(filepath.Join(d.Dir, configFile),
		append([]string{"model.path=" + filepath.Join(d.Dir, model)}, d.Overrides...))
	if err != nil {
		return err
	}
	tokenizer, err := chat.Load(filepath.Join(d.Dir, model))
	if err != nil {
		return err
	}
	player := rollout.NewPlayer(tokenizer, nil, c.Rollout, c.Rewards, 0)
	defer player.Close()
	fmt.Fprintln(d.Stdout, "One held-out level, before and after training: # wall, P player, X box, O target, S "+
		"player on target, √ box on target.")
	for i, moment := range moments(before, after) {
		e := played[i][chosen]
		frames, err := player.Replay(ctx, c.Validation.Envs[0], e)
		if err != nil {
			return fmt.Errorf("showing the level: %w", err)
		}
		fmt.Fprintf(d.Stdout, "\n%s training: %s\n\n%s", moment.name, episode.Verdict(e.Success, e.Unjudged),
			episodes.Strip(frames, 78))
	}
	return nil
}
