package cli

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/sft"
	"gyre/orchestrate/run/metrics"
)

func sftCommand() *cli.Command {
	return &cli.Command{
		Name:      "sft",
		Usage:     "fit a policy to expert demonstrations (baseline or warm start)",
		ArgsUsage: "CONFIG|RUN [key=value ...]",
		Description: `Builds demonstrations with the experts of the configured environments, in the
very prompts that training uses, leaves them in RUN/demonstrations (JSONL and
Parquet), and fits the policy to them as [sft] says. The epoch of the lowest
loss on held-out demonstrations is played on the validation set. It is
RUN/best/actor, a Hugging Face directory (RUN is run.output/run.name).

   gyre sft configs/demo.toml run.name=warm
   gyre train configs/demo.toml model.path=runs/warm/best/actor`,
		Flags: append([]cli.Flag{
			resumeFlag(),
			dryRunFlag(),
		}, ranksFlags(true)...),
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
			return overRanks(c, cfg, "--resume", func(ctx context.Context, world *ranks.World,
				console *metrics.Console) error {
				options.World, options.Console = world, console
				t, err := sft.New(ctx, cfg, options)
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

func dataDemonstrationsCommand() *cli.Command {
	return &cli.Command{
		Name: "demonstrations", Usage: "let experts play, and keep what they did", ArgsUsage: "CONFIG [key=value ...]",
		Description: `Makes the demonstrations that gyre sft would make of CONFIG, without weights:
train and test as JSONL and Parquet, a row per reply (data_source, prompt,
response, extra_info), and episodes.jsonl, which sft.data reads.

   gyre data demonstrations configs/demo.toml --output data/sokoban
   gyre sft configs/demo.toml sft.data=data/sokoban/episodes.jsonl`,
		Flags: []cli.Flag{&cli.StringFlag{Name: "output", Required: true, Usage: "`DIR` for the files"}},
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
			_, err = fmt.Fprintf(c.App.Writer, "%s: %d episodes to learn from, %d held out\n", dir, s.Episodes,
				s.ValidationEpisodes)
			return err
		},
	}
}
