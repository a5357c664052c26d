package cli

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"gyre/internal/exitcode"
	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/sft"
	"gyre/orchestrate/loop/source"
	"gyre/orchestrate/loop/trainer"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/study/demo"
	"gyre/torch"
)

func trainCommand() *cli.Command {
	return &cli.Command{
		Name: "train", Usage: "train a policy by reinforcement learning", ArgsUsage: "CONFIG|RUN [key=value ...]",
		Flags: []cli.Flag{
			resumeFlag(),
			text("resume-from", "continue global_step_N `DIR` in a new run directory"),
			text("replay", "train on the episodes in `FILE` instead of playing"),
			text("replay-schedule", "repeat `RUN` by its schedule: the same bits"),
			toggle("diverging", "with --replay-schedule: other tokens are no error"),
			atLeast(1, "until", 0, "save and pause after step `N`"),
			dryRunFlag(), planDeviceFlag(), ranksFlag(), restartsFlag(),
		},
		Action: func(c *cli.Context) error {
			cfg, err := loadConfig(c, func(*config.Config) bool { return c.String("replay") != "" })
			if err != nil {
				return err
			}
			options := session.Options{Resume: c.Bool("resume"), ResumeFrom: c.String("resume-from"),
				Replay: c.String("replay"), ReplaySchedule: c.String("replay-schedule"), Diverging: c.Bool("diverging"), Until: c.Int("until"),
				Console: metrics.NewConsole(c.App.ErrWriter)}
			switch {
			case c.Bool("dry-run") && c.IsSet("device"):
				return planScale(c, cfg)
			case c.IsSet("device"):
				return Usagef("--device is for plans (--dry-run); a run computes where model.device says")
			case c.Bool("dry-run"):
				opened, err := trainer.Check(cfg, options)
				return dryRun(c, opened, err)
			}
			return runTraining(c, cfg, options, func(ctx context.Context, cfg *config.Config,
				o session.Options) (training, error) {
				if source.Samples(cfg, o.World) {
					return source.NewSampler(cfg, o), nil
				}
				return trainer.New(ctx, cfg, o)
			})
		},
	}
}

// training is a run that goes on until its last step or an early stop.
type training interface {
	Run(ctx context.Context) (session.Outcome, error)
	Close()
}

// runTraining runs in this process or over ranks, and prints the run's folder. An early stop is exit code 5.
func runTraining[T training](c *cli.Context, cfg *config.Config, options session.Options,
	open func(context.Context, *config.Config, session.Options) (T, error)) error {
	return overRanks(c, cfg, "--resume", func(ctx context.Context, world *ranks.World, console *metrics.Console) error {
		options.World, options.Console = world, console
		t, err := open(ctx, cfg, options)
		if err != nil {
			return openingError(err)
		}
		defer t.Close()
		outcome, err := goOn(ctx, t)
		if err == nil && world.Writes() {
			err = printf(c, "%s\n", outcome.Dir)
		}
		return err
	})
}

// goOn runs a training; an early stop is an error with its exit code.
func goOn(ctx context.Context, t training) (session.Outcome, error) {
	outcome, err := t.Run(ctx)
	if err == nil && outcome.Early != nil {
		err = &ExitError{exitcode.StoppedEarly, fmt.Errorf("step %d: %w", outcome.Steps, outcome.Early)}
	}
	return outcome, err
}

// trainHere is gyre train on a configuration in this process, which may have other runs: what it has to say goes to the
// options' console.
func trainHere(ctx context.Context, cfg *config.Config, options session.Options) (code int) {
	return conclusion(options.Console, ctx, func() error {
		for _, w := range cfg.Warnings() {
			fmt.Fprintf(options.Console, "warning: %s\n", w)
		}
		t, err := trainer.New(ctx, cfg, options)
		if err != nil {
			return openingError(err)
		}
		defer t.Close()
		_, err = goOn(ctx, t)
		return err
	}())
}

// dryRun prints what a run will start with: the resolved configuration, and on stderr what it will need.
func dryRun(c *cli.Context, opened *experiment.Experiment, err error) error {
	if err != nil {
		return openingError(err)
	}
	absent, err := opened.CheckWeights()
	if err != nil {
		return openingError(err)
	}
	cfg := opened.Config // with the type that auto came to
	resolved, err := config.Resolved(cfg)
	if err != nil {
		return err
	}
	if err := printf(c, "%s\n", resolved); err != nil {
		return err
	}
	fmt.Fprintf(c.App.ErrWriter, "policy: %s, %.1f M parameters\nmemory:\n%s", opened.Policy.Dir,
		float64(experiment.Parameters(opened.Policy.Shape))/1e6, opened.PlanMemory())
	for _, dir := range absent {
		warn(c, dir+" has no weights yet: the run will need them")
	}
	if _, warning := opened.Note(); warning != "" {
		warn(c, warning)
	}
	if strings.HasPrefix(cfg.Model.Device, "cuda") {
		if gpus := torch.CUDAInfo(); strings.HasPrefix(gpus, "none") {
			warn(c, "model.device = "+cfg.Model.Device+", but GPUs of this machine: "+gpus)
		}
	}
	return nil
}

func sftCommand() *cli.Command {
	return &cli.Command{
		Name: "sft", Usage: "fit a policy to expert demonstrations (baseline or warm start)",
		ArgsUsage: "CONFIG|RUN [key=value ...]",
		Flags:     []cli.Flag{resumeFlag(), dryRunFlag(), ranksFlag(), restartsFlag()},
		Action: func(c *cli.Context) error {
			cfg, err := loadConfig(c, func(cfg *config.Config) bool { return cfg.SFT.Data != "" })
			if err != nil {
				return err
			}
			options := session.Options{Resume: c.Bool("resume"), Console: metrics.NewConsole(c.App.ErrWriter)}
			if c.Bool("dry-run") {
				opened, err := sft.Check(cfg, options)
				return dryRun(c, opened, err)
			}
			return runTraining(c, cfg, options, sft.New)
		},
	}
}

func dataDemonstrationsCommand() *cli.Command {
	return &cli.Command{
		Name: "demonstrations", Usage: "let experts play, and keep what they did", ArgsUsage: "CONFIG [key=value ...]",
		Flags: []cli.Flag{required("output", "`DIR` for the files")},
		Action: func(c *cli.Context) error {
			cfg, err := loadConfig(c, playing)
			if err != nil {
				return err
			}
			dir := c.String("output")
			if err := sft.Demonstrate(c.Context, cfg, dir, metrics.NewConsole(c.App.ErrWriter)); err != nil {
				return err
			}
			s := cfg.SFT
			return printf(c, "%s: %d training episodes, %d held out\n", dir, s.Episodes, s.ValidationEpisodes)
		},
	}
}

func demoCommand() *cli.Command {
	return &cli.Command{
		Name: "demo", Usage: "train and analyse a small Sokoban agent, from nothing to a report",
		ArgsUsage: "[key=value ...]",
		Flags:     []cli.Flag{withDefault("dir", ".", "where configs/, models/ and runs/ go")},
		Action: func(c *cli.Context) error {
			program, err := os.Executable()
			if err != nil {
				return err
			}
			dir := c.String("dir")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			d := demo.Demo{Program: program, Dir: dir, Stdout: c.App.Writer, Stderr: c.App.ErrWriter,
				Overrides: c.Args().Slice()}
			return d.Run(c.Context)
		},
	}
}
