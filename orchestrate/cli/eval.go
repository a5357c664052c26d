package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"gyre/internal/statistics"
	"gyre/orchestrate/config"
	"gyre/orchestrate/metrics"
	"gyre/orchestrate/rollout"
	"gyre/orchestrate/trainer"
)

func evalCommand() *cli.Command {
	return &cli.Command{
		Name:      "eval",
		Usage:     "validate a policy: play the fixed validation set and report",
		ArgsUsage: "CONFIG [key=value ...]",
		Description: `Plays the validation episodes of CONFIG with the policy in model.path, or
with that of --checkpoint, and prints its metrics; successes with their 95 %
interval. --random plays the same levels with uniformly random actions.

   gyre eval configs/demo.toml
   gyre eval configs/demo.toml --checkpoint runs/demo --json`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "checkpoint", Usage: "run, global_step_N or Hugging Face `DIR`"},
			&cli.StringFlag{Name: "output", Usage: "write the episodes to this JSONL `FILE`"},
			&cli.BoolFlag{Name: "random", Usage: "play at random instead: the baseline of these levels"},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object instead of a table"},
		},
		Action: func(c *cli.Context) error {
			cfg, err := loadConfig(c, playing)
			if err != nil {
				return err
			}
			var result map[string]float64
			if c.Bool("random") {
				if c.String("checkpoint")+c.String("output") != "" {
					return Usagef("--random plays without a policy and writes no episodes: leave out --checkpoint and --output")
				}
				result, err = rollout.PlayRandom(c.Context, rollout.ValidationPlan(cfg, 0))
			} else {
				result, err = trainer.Evaluate(c.Context, cfg, c.String("checkpoint"), c.String("output"), metrics.NewConsole(c.App.ErrWriter))
			}
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
				fmt.Fprintf(w, "%s\t%.4f%s\n", name, result[name], successInterval(cfg, name, result[name], c.Bool("random")))
			}
			return w.Flush()
		},
	}
}

// successInterval is what stands behind a tag's share of successes: its interval, as of independent episodes.
func successInterval(cfg *config.Config, name string, share float64, once bool) string {
	episodes := 0
	for _, e := range cfg.Validation.Envs {
		if name != e.Tag+"/success" {
			continue
		}
		if once {
			episodes += e.Groups
		} else {
			episodes += e.Groups * e.GroupSize
		}
	}
	if episodes == 0 {
		return ""
	}
	low, high := statistics.Wilson(share, episodes, 0.95)
	return fmt.Sprintf("\t[%.4f, %.4f] of %d", low, high, episodes)
}
