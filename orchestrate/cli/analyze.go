package cli

import (
	"cmp"
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/loop/trainer"
	"gyre/orchestrate/run/metrics"
)

func analyzeCommand() *cli.Command {
	return &cli.Command{
		Name:      "analyze",
		Usage:     "gradient analysis of one checkpoint",
		ArgsUsage: "CONFIG|RUN [key=value ...]",
		Description: `Measures the task, entropy and KL gradients of a checkpoint by reward-spread
bucket, as a training step does, and changes nothing. Episodes are played as
CONFIG says, or read from a file. RUN, a run's folder, stands for its
configuration and its newest checkpoint.

   gyre analyze runs/demo                              its newest checkpoint
   gyre analyze CONFIG --checkpoint runs/demo/global_step_40 --output probe
   gyre analyze CONFIG --checkpoint models/policy algorithm.kl_coef=0.001
   gyre analyze CONFIG --checkpoint DIR --rollouts episodes.jsonl --json

To repeat what a run logged at step N, take the policy of global_step_(N-1)
and the episodes of rollouts/step_N.jsonl, or play those again with --step N.
A separate analysis batch is scored after the critic's update: take its
critic from global_step_N (--critic), its episodes from analysis_N.jsonl.`,
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "checkpoint", Usage: "run, global_step_N or Hugging Face `DIR`"},
			&cli.StringFlag{Name: "critic", Usage: "take the critic from `DIR` instead"},
			&cli.StringFlag{Name: "rollouts", Usage: "JSONL `FILE` of episodes, not played ones"},
			&cli.IntFlag{Name: "step", Usage: "play or read the episodes of step `N`"},
			&cli.BoolFlag{Name: "with-val", Usage: "play the validation set first"},
			&cli.StringFlag{Name: "output", Usage: "write metrics and tables to `DIR` for gyre plot"},
			jsonFlag(),
		}, ranksFlags(false)...),
		Action: func(c *cli.Context) error {
			given := c.String("rollouts") != "" && !c.Bool("with-val")
			cfg, err := loadConfig(c, func(*config.Config) bool { return given })
			if err != nil {
				return err
			}
			if n := c.Int("step"); n < 0 || c.IsSet("step") && n == 0 {
				return Usagef("--step is %d, expected 1 or more", n)
			}
			return overRanks(c, cfg, "", func(ctx context.Context, world *ranks.World, console *metrics.Console) error {
				result, err := trainer.Analyze(ctx, cfg, trainer.Probe{
					Checkpoint: cmp.Or(c.String("checkpoint"), runArgument(c)), Critic: c.String("critic"),
					Rollouts: c.String("rollouts"), Step: c.Int("step"),
					Validate: c.Bool("with-val"), Output: c.String("output"), Console: console, World: world,
				})
				if err != nil {
					return openingError(err)
				}
				if !world.Writes() {
					return nil
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
			})
		},
	}
}
