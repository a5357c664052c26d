package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"gyre/orchestrate/metrics"
	"gyre/orchestrate/trainer"
)

func evalCommand() *cli.Command {
	return &cli.Command{
		Name:      "eval",
		Usage:     "validate a policy: play the fixed validation set and report",
		ArgsUsage: "CONFIG [key=value ...]",
		Description: `Plays the validation episodes of CONFIG with the policy in model.path, or
with that of --checkpoint, and prints its metrics.

   gyre eval configs/demo.toml
   gyre eval configs/demo.toml --checkpoint runs/demo --json`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "checkpoint", Usage: "run, global_step_N or Hugging Face `DIR`"},
			&cli.StringFlag{Name: "output", Usage: "write the episodes to this JSONL `FILE`"},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object instead of a table"},
		},
		Action: func(c *cli.Context) error {
			cfg, err := loadConfig(c, playing)
			if err != nil {
				return err
			}
			result, err := trainer.Evaluate(c.Context, cfg, c.String("checkpoint"), c.String("output"), metrics.NewConsole(c.App.ErrWriter))
			if err != nil {
				return trainingError(err)
			}
			if c.Bool("json") {
				return json.NewEncoder(c.App.Writer).Encode(result)
			}
			names := make([]string, 0, len(result))
			for name := range result {
				names = append(names, name)
			}
			slices.Sort(names)
			w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
			for _, name := range names {
				fmt.Fprintf(w, "%s\t%.4f\n", name, result[name])
			}
			return w.Flush()
		},
	}
}
