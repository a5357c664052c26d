package cli

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/sft"
	"gyre/orchestrate/run/metrics"
)

func sftCommand() *cli.Command {
	return &cli.Command{
		Name:      "sft",
		Usage:     "fit a policy to expert demonstrations (baseline or warm start)",
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
			_, err = fmt.Fprintf(c.App.Writer, "%s: %d episodes to learn from, %d held out\n", dir, s.Episodes,
				s.ValidationEpisodes)
			return err
		},
	}
}
