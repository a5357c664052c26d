package cli

import (
	"github.com/urfave/cli/v2"

	"gyre/orchestrate/config"
	"gyre/orchestrate/metrics"
	"gyre/orchestrate/trainer"
)

func sftCommand() *cli.Command {
	return &cli.Command{
		Name:      "sft",
		Usage:     "fit a policy to expert demonstrations (baseline or warm start)",
		ArgsUsage: "CONFIG [key=value ...]",
		Description: `Builds demonstrations with the solvers of the configured environments, in the
very prompts that training uses, and fits the policy to them as [sft] says.
The result, a Hugging Face directory, is
run.output/run.name/global_step_N/actor.

   gyre sft configs/demo.toml run.name=warm
   gyre train configs/demo.toml model.path=runs/warm/global_step_1/actor`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "resume", Usage: "continue an interrupted run; start when there is none"},
		},
		Action: func(c *cli.Context) error {
			cfg, err := loadConfig(c, func(cfg *config.Config) bool { return cfg.SFT.Data != "" })
			if err != nil {
				return err
			}
			t, err := trainer.NewSFT(cfg, trainer.Options{Resume: c.Bool("resume"), Console: metrics.NewConsole(c.App.ErrWriter)})
			if err != nil {
				return trainingError(err)
			}
			defer t.Close()
			outcome, err := t.Run(c.Context)
			return conclude(c, outcome, err)
		},
	}
}
