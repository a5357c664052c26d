package cli

import (
	"context"
	"errors"
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
		Name: "eval", Usage: "validate a policy: play the fixed validation set and report",
		ArgsUsage: "CONFIG|RUN [key=value ...]",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "checkpoint",
				Usage: "`[NAME=]DIR`: run, global_step_N or Hugging Face directory"},
			text("output", "write the episodes to this JSONL `FILE`"),
			toggle("random", "play at random instead: the baseline of these levels"),
			text("by-turns", "write success by turns to `DIR`: CSV, JSON, PNG"),
			toggle("dry-run", "open everything but the weights, print the memory, stop"),
			jsonFlag(), ranksFlag(),
		},
		Action: evaluate,
	}
}

// evaluate plays the validation set with every checkpoint, or at random, and prints what it found.
func evaluate(c *cli.Context) error {
	cfg, err := loadConfig(c, playing)
	if err != nil {
		return err
	}
	if err := errors.Join(
		excludes(c, "random", "it plays without a policy, in one process, and keeps no episodes", "checkpoint",
			"output", "by-turns", "ranks", "dry-run"),
		excludes(c, "dry-run", "it says what one process would need", "ranks")); err != nil {
		return err
	}
	if c.Bool("random") {
		result, err := rollout.PlayRandom(c.Context, rollout.ValidationPlan(cfg, 0))
		if err != nil {
			return openingError(err)
		}
		return printEvaluations(c, cfg, []evaluation.Result{{Metrics: result}})
	}
	list := namedCheckpoints(c, cfg)
	if len(list) > 1 && c.String("output") != "" {
		return Usagef("--output takes the episodes of one checkpoint, and there are %d", len(list))
	}
	if c.Bool("dry-run") {
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
		weights := "there"
		if absent, err := opened.CheckWeights(); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		} else if len(absent) > 0 {
			weights = "not there yet"
		}
		peak := opened.PlanMemory().Peak()
		t.Add(e.name, evaluation.Parameters(experiment.Parameters(opened.Policy.Shape)), episodes, turns,
			cfg.Rollout.MaxLength, table.Cell{Value: peak, Text: fmt.Sprintf("%.1f GiB", gibibytes(peak))}, weights)
	}
	return show(c, t)
}

func gibibytes(n int64) float64 { return float64(n) / (1 << 30) }

// evaluated is a checkpoint that is to be played with; dir is empty for model.path.
type evaluated struct{ name, dir string }

// namedCheckpoints are those of the command line: of --checkpoint, else the run that was given, else model.path. A name
// before = is one unless the whole is a directory.
func namedCheckpoints(c *cli.Context, cfg *config.Config) (out []evaluated) {
	words := c.StringSlice("checkpoint")
	if run := runArgument(c); run != "" && len(words) == 0 {
		words = []string{run}
	}
	for _, word := range words {
		name, dir, named := strings.Cut(word, "=")
		if !named || exists(word) {
			name, dir = strings.TrimSuffix(strings.TrimSuffix(filepath.Clean(word), "/actor"), "/best"), word
			name = filepath.Base(name)
		}
		out = append(out, evaluated{name, dir})
	}
	if out == nil {
		return []evaluated{{name: filepath.Base(cfg.Model.Path)}}
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
