package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/trainer"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/study/scale"
	"gyre/torch"
)

func trainCommand() *cli.Command {
	return &cli.Command{
		Name:      "train",
		Usage:     "train a policy by reinforcement learning",
		ArgsUsage: "CONFIG|RUN [key=value ...]",
		Description: `Plays, filters, updates and analyses as CONFIG says. Everything goes into
the folder run.output/run.name, which is printed at the end. RUN is such a
folder: its configuration counts.

   gyre train configs/demo.toml
   gyre train configs/demo.toml run.steps=20 filter.value=0.8
   gyre train runs/demo --resume
   gyre train configs/demo.toml --replay episodes.jsonl
   gyre train configs/demo.toml --ranks 4

Under torchrun --no-python, mpirun and srun the same command joins the run
that they start.

Ctrl-C once finishes the step, saves and exits with 130; twice ends at once.
Exit code 3 means that training diverged, 4 that a checkpoint is corrupt,
5 that a collapse rule ([early_stop]) ended it.`,
		Flags: append([]cli.Flag{
			resumeFlag(),
			&cli.StringFlag{Name: "resume-from", Usage: "continue global_step_N `DIR` in a new run directory"},
			&cli.StringFlag{Name: "replay", Usage: "update on the episodes in `FILE` (JSONL) instead of playing"},
			&cli.IntFlag{Name: "until", Usage: "pause after step `N`, saved; --resume goes on"},
			dryRunFlag(),
			&cli.StringFlag{Name: "device", Usage: "with --dry-run: plan for `NAME` (h100, a100, here, ...)"},
		}, ranksFlags(true)...),
		Action: func(c *cli.Context) error {
			cfg, err := loadConfig(c, func(*config.Config) bool { return c.String("replay") != "" })
			if err != nil {
				return err
			}
			options := session.Options{Resume: c.Bool("resume"), ResumeFrom: c.String("resume-from"),
				Replay: c.String("replay"),
				Until:  c.Int("until"), Console: metrics.NewConsole(c.App.ErrWriter)}
			if c.IsSet("until") && options.Until < 1 {
				return Usagef("--until is %d, expected a step of at least 1", options.Until)
			}
			switch {
			case c.Bool("dry-run") && c.IsSet("device"):
				return planScale(c, cfg)
			case c.IsSet("device"):
				return Usagef("--device is for plans (--dry-run); a run computes where model.device says")
			case c.Bool("dry-run"):
				opened, err := trainer.Check(cfg, options)
				return dryRun(c, opened, err)
			}
			return overRanks(c, cfg, "--resume", func(ctx context.Context, world *ranks.World,
				console *metrics.Console) error {
				options.World, options.Console = world, console
				t, err := trainer.New(ctx, cfg, options)
				if err != nil {
					return openingError(err)
				}
				defer t.Close()
				outcome, err := t.Run(ctx)
				return conclude(c, world, outcome, err)
			})
		},
	}
}

// conclude prints the last line of a run and turns early stops into exit code 5.
func conclude(c *cli.Context, world *ranks.World, outcome session.Outcome, err error) error {
	if err != nil {
		return trainingError(err)
	}
	if outcome.Early != nil {
		return &ExitError{Code: exitStoppedEarly, Err: fmt.Errorf("step %d: %w", outcome.Steps, outcome.Early)}
	}
	if world.Writes() {
		_, err = fmt.Fprintln(c.App.Writer, outcome.Dir)
	}
	return err
}

// planScale prints what the run would take on --ranks of a --device. It needs no more of a model than its config.json.
func planScale(c *cli.Context, cfg *config.Config) error {
	n := max(c.Int("ranks"), 1)
	machine, err := scale.Find(c.String("device"), n, experiment.Memory())
	if err != nil {
		return Usagef("%w", err)
	}
	if machine.Bytes < 4 {
		cfg.Model.Device, cfg.Model.DType = "cuda", "auto"
	}
	parts := trainer.TrainingParts(true)
	opened, err := experiment.Open(cfg, parts)
	if err != nil {
		return openingError(err)
	}
	opened.Parts.Play = true
	plan, err := scale.New(opened, cfg, n, machine)
	if err != nil {
		return Usagef("%w", err)
	}
	_, err = fmt.Fprintf(c.App.Writer, "policy: %s, %.2f billion parameters\n%s", opened.Policy.Dir,
		float64(experiment.Parameters(opened.Policy.Shape))/1e9, plan)
	return err
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
	if _, err := fmt.Fprintf(c.App.Writer, "%s\n", resolved); err != nil {
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
	if gpus := torch.CUDAInfo(); strings.HasPrefix(cfg.Model.Device, "cuda") && strings.HasPrefix(gpus, "none") {
		warn(c, "model.device = "+cfg.Model.Device+", but GPUs of this machine: "+gpus)
	}
	return nil
}
