package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"gyre/internal/table"
	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/study/evaluation"
)

func evalCommand() *cli.Command {
	return &cli.Command{
		Name:      "eval",
		Usage:     "validate a policy: play the fixed validation set and report",
		ArgsUsage: "CONFIG|RUN [key=value ...]",
		Description: `Plays the validation episodes of CONFIG with the policy in model.path, or
with that of --checkpoint, and prints its metrics; successes first, with
their 95 % interval. RUN, a run's folder, stands for its configuration and
its newest checkpoint. --random plays the same levels with uniformly random
actions. Several checkpoints are compared; --by-turns says how many episodes
were solved by which turn. --json also has the means over the episodes in
which a metric is not zero.

   gyre eval configs/demo.toml
   gyre eval runs/demo
   gyre eval configs/demo.toml --checkpoint runs/demo --json
   gyre eval configs/sokoban_25_turns.toml --by-turns studies/25_turns \\
     --checkpoint small=models/a --checkpoint large=runs/b`,
		Flags: append([]cli.Flag{
			&cli.StringSliceFlag{Name: "checkpoint",
				Usage: "`[NAME=]DIR`: run, global_step_N or Hugging Face directory"},
			&cli.StringFlag{Name: "output", Usage: "write the episodes to this JSONL `FILE`"},
			&cli.BoolFlag{Name: "random", Usage: "play at random instead: the baseline of these levels"},
			&cli.StringFlag{Name: "by-turns", Usage: "write success by turns to `DIR`: CSV, JSON, PNG"},
			jsonFlag(),
			&cli.BoolFlag{Name: "dry-run", Usage: "open everything but the weights, print the memory, stop"},
		}, ranksFlags(false)...),
		Action: evaluate,
	}
}

// evaluate plays the validation set with every checkpoint, or at random, and prints what it found.
func evaluate(c *cli.Context) error {
	cfg, err := loadConfig(c, playing)
	if err != nil {
		return err
	}
	if c.Bool("random") {
		if len(c.StringSlice("checkpoint")) > 0 || c.String("output")+c.String("by-turns") != "" {
			return Usagef("--random plays without a policy and keeps no episodes: leave out --checkpoint, --output " +
				"and --by-turns")
		}
		if c.IsSet("ranks") {
			return Usagef("--random plays without a policy, in one process: leave out --ranks")
		}
		if c.Bool("dry-run") {
			return Usagef("--random plays without a policy: there is nothing that --dry-run could open")
		}
		result, err := rollout.PlayRandom(c.Context, rollout.ValidationPlan(cfg, 0))
		if err != nil {
			return openingError(err)
		}
		return printEvaluations(c, cfg, []evaluation.Result{{Metrics: result}})
	}
	checkpoints := c.StringSlice("checkpoint")
	if run := runArgument(c); run != "" && len(checkpoints) == 0 {
		checkpoints = []string{run}
	}
	list := namedCheckpoints(checkpoints, cfg)
	if len(list) > 1 && c.String("output") != "" {
		return Usagef("--output takes the episodes of one checkpoint, and there are %d", len(list))
	}
	if c.Bool("dry-run") {
		if c.IsSet("ranks") {
			return Usagef("--dry-run says what one process would need: leave out --ranks")
		}
		return checkEvaluations(c, cfg, list, metrics.NewConsole(c.App.ErrWriter))
	}
	return overRanks(c, cfg, "", func(ctx context.Context, world *ranks.World, console *metrics.Console) error {
		var results []evaluation.Result
		for _, e := range list {
			if len(list) > 1 {
				fmt.Fprintf(console, "%s\n", e.name)
			}
			found, err := session.Evaluate(ctx, cfg, e.dir, c.String("output"), world, console)
			if err != nil {
				return openingError(err)
			}
			results = append(results, evaluation.Result{Name: e.name, Parameters: found.Parameters,
				Metrics: found.Metrics, Episodes: found.Episodes})
		}
		if !world.Writes() {
			return nil
		}
		if err := printEvaluations(c, cfg, results); err != nil || c.String("by-turns") == "" {
			return err
		}
		brief, paths, err := evaluation.ByTurns(cfg.Run.Name+": success by turns", results, cfg.Validation.Envs,
			c.String("by-turns"))
		if err != nil {
			return err
		}
		fmt.Fprintf(c.App.Writer, "\n%s%s\n", brief.Text(table.Width(c.App.Writer)), strings.Join(paths, "\n"))
		return nil
	})
}

// checkEvaluations prints what the checkpoints would be played with, and what each needs.
func checkEvaluations(c *cli.Context, cfg *config.Config, list []evaluated, console *metrics.Console) error {
	t := table.New("checkpoint", "parameters", "episodes", "turns", "tokens", "memory", "weights")
	episodes, turns := 0, 0
	for _, e := range cfg.Validation.Envs {
		episodes, turns = episodes+e.Groups*e.GroupSize, max(turns, e.MaxTurns)
	}
	for _, e := range list {
		opened, err := session.CheckEvaluation(cfg, e.dir, console)
		if err != nil {
			return openingError(fmt.Errorf("%s: %w", e.name, err))
		}
		absent, err := opened.CheckWeights()
		if err != nil {
			return trainingError(fmt.Errorf("%s: %w", e.name, err))
		}
		weights := "there"
		if len(absent) > 0 {
			weights = "not there yet"
		}
		t.Add(e.name, evaluation.Parameters(experiment.Parameters(opened.Policy.Shape)), episodes, turns,
			cfg.Rollout.MaxLength,
			gibibytes(opened.PlanMemory().Peak()), weights)
	}
	return show(c, t)
}

// gibibytes is a number of bytes that people read in GiB.
func gibibytes(n int64) table.Cell {
	return table.Cell{Value: n, Text: fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))}
}

// evaluated is a checkpoint that is to be played with; dir is empty for model.path.
type evaluated struct{ name, dir string }

// namedCheckpoints are those of the command line, model.path without any. A name before = is one unless the whole is a
// directory.
func namedCheckpoints(words []string, cfg *config.Config) []evaluated {
	if len(words) == 0 {
		return []evaluated{{name: filepath.Base(cfg.Model.Path)}}
	}
	var out []evaluated
	for _, word := range words {
		name, dir, named := strings.Cut(word, "=")
		if !named || exists(word) {
			name, dir = strings.TrimSuffix(strings.TrimSuffix(filepath.Clean(word), "/actor"), "/best"), word
			name = filepath.Base(name)
		}
		out = append(out, evaluated{name: name, dir: dir})
	}
	return out
}

// printEvaluations prints the metrics, a column per checkpoint.
func printEvaluations(c *cli.Context, cfg *config.Config, list []evaluation.Result) error {
	if c.Bool("json") {
		return evaluation.WriteJSON(c.App.Writer, list)
	}
	return evaluation.Metrics(list, cfg.Validation.Envs, c.Bool("random")).Write(c.App.Writer)
}
