package cli

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"gyre/orchestrate/config"
	"gyre/orchestrate/metrics"
	"gyre/orchestrate/trainer"
)

func analyzeCommand() *cli.Command {
	return &cli.Command{
		Name:      "analyze",
		Usage:     "gradient analysis of one checkpoint",
		ArgsUsage: "CONFIG [key=value ...]",
		Description: `Measures, by reward-spread bucket, the task, entropy and KL gradients of a checkpoint, as a training step does, and changes nothing.
Episodes are played as CONFIG says, or read from a file.

   gyre analyze configs/demo.toml --checkpoint runs/demo                     the run's newest checkpoint
   gyre analyze configs/demo.toml --checkpoint runs/demo/global_step_40 --output probe
   gyre analyze configs/demo.toml --checkpoint models/policy algorithm.kl_coef=0.001
   gyre analyze configs/demo.toml --checkpoint DIR --rollouts episodes.jsonl --json

To repeat what a run logged at step N, take the policy from global_step_(N-1) and the episodes from rollouts/step_N.jsonl, or play
them again with --step N. A separate analysis batch is scored after the critic's update: take its critic from global_step_N
(--critic) and its episodes from rollouts/analysis_N.jsonl.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "checkpoint", Usage: "a run directory, a global_step_N folder or a Hugging Face `DIR` instead of model.path"},
			&cli.StringFlag{Name: "critic", Usage: "take the critic from this `DIR` instead of the checkpoint"},
			&cli.StringFlag{Name: "rollouts", Usage: "analyse the episodes in this JSONL `FILE` instead of playing"},
			&cli.IntFlag{Name: "step", Usage: "the step `N` whose random draws are played, or whose episodes are taken from the file"},
			&cli.BoolFlag{Name: "with-val", Usage: "play the validation set first"},
			&cli.StringFlag{Name: "output", Usage: "write metrics.jsonl and the folder analysis to `DIR`, for gyre plot DIR"},
			&cli.BoolFlag{Name: "json", Usage: "print every metric as one JSON object instead of tables"},
		},
		Action: func(c *cli.Context) error {
			given := c.String("rollouts") != "" && !c.Bool("with-val")
			cfg, err := loadConfig(c, func(*config.Config) bool { return given })
			if err != nil {
				return err
			}
			if n := c.Int("step"); n < 0 || c.IsSet("step") && n == 0 {
				return Usagef("--step is %d, expected 1 or more", n)
			}
			result, err := trainer.Analyze(c.Context, cfg, trainer.Probe{
				Checkpoint: c.String("checkpoint"), Critic: c.String("critic"), Rollouts: c.String("rollouts"), Step: c.Int("step"),
				Validate: c.Bool("with-val"), Output: c.String("output"), Console: metrics.NewConsole(c.App.ErrWriter),
			})
			if errors.Is(err, trainer.ErrNotCheckpoint) {
				return &ExitError{Code: exitUsage, Err: err}
			}
			if err != nil {
				return trainingError(err)
			}
			if !c.Bool("json") {
				_, err := fmt.Fprint(c.App.Writer, result.Text)
				return err
			}
			line, err := metrics.Encode(result.Step, result.Values)
			if err != nil {
				return err
			}
			_, err = c.App.Writer.Write(line)
			return err
		},
	}
}
