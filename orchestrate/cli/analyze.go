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
		Name: "analyze", Usage: "gradient analysis of one checkpoint", ArgsUsage: "CONFIG|RUN [key=value ...]",
		Flags: []cli.Flag{
			text("checkpoint", "run, global_step_N or Hugging Face `DIR`"),
			text("critic", "take the critic from `DIR` instead"),
			text("rollouts", "JSONL `FILE` of episodes, not played ones"),
			atLeast(1, "step", 0, "play or read the episodes of step `N`"),
			toggle("with-val", "play the validation set first"),
			text("output", "write metrics and tables to `DIR` for gyre plot"),
			jsonFlag(), ranksFlag(),
		},
		Action: func(c *cli.Context) error {
			given := c.String("rollouts") != "" && !c.Bool("with-val")
			cfg, err := loadConfig(c, func(*config.Config) bool { return given })
			if err != nil {
				return err
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
