package cli

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"gyre/internal/atomicfile"
	"gyre/internal/statistics"
	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/loop/trainer"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/study/plot"
)

func evalCommand() *cli.Command {
	return &cli.Command{
		Name:      "eval",
		Usage:     "validate a policy: play the fixed validation set and report",
		ArgsUsage: "CONFIG [key=value ...]",
		Description: `Plays the validation episodes of CONFIG with the policy in model.path, or
with that of --checkpoint, and prints its metrics; successes with their 95 %
interval. --random plays the same levels with uniformly random actions.
Several checkpoints are compared; --by-turns says how many episodes were
solved by which turn.

   gyre eval configs/demo.toml
   gyre eval configs/demo.toml --checkpoint runs/demo --json
   gyre eval configs/sokoban_25_turns.toml --by-turns studies/25_turns \\
     --checkpoint small=models/a --checkpoint large=runs/b`,
		Flags: append([]cli.Flag{
			&cli.StringSliceFlag{Name: "checkpoint", Usage: "`[NAME=]DIR`: run, global_step_N or Hugging Face directory"},
			&cli.StringFlag{Name: "output", Usage: "write the episodes to this JSONL `FILE`"},
			&cli.BoolFlag{Name: "random", Usage: "play at random instead: the baseline of these levels"},
			&cli.StringFlag{Name: "by-turns", Usage: "write success by turns to `DIR`: CSV, JSON, PNG"},
			&cli.BoolFlag{Name: "json", Usage: "print JSON objects instead of a table"},
			&cli.BoolFlag{Name: "dry-run", Usage: "open everything but the weights, print the memory, stop"},
		}, ranksFlags(false)...),
		Action: func(c *cli.Context) error {
			cfg, err := loadConfig(c, playing)
			if err != nil {
				return err
			}
			if c.Bool("random") {
				if len(c.StringSlice("checkpoint")) > 0 || c.String("output")+c.String("by-turns") != "" {
					return Usagef("--random plays without a policy and keeps no episodes: leave out --checkpoint, --output and --by-turns")
				}
				if c.IsSet("ranks") {
					return Usagef("--random plays without a policy, in one process: leave out --ranks")
				}
				if c.Bool("dry-run") {
					return Usagef("--random plays without a policy: there is nothing that --dry-run could open")
				}
				result, err := rollout.PlayRandom(c.Context, rollout.ValidationPlan(cfg, 0))
				if err != nil {
					return trainingError(err)
				}
				return printEvaluations(c, cfg, []evaluated{{result: &trainer.Evaluation{Metrics: result}}})
			}
			list := namedCheckpoints(c.StringSlice("checkpoint"), cfg)
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
				for i := range list {
					if len(list) > 1 {
						fmt.Fprintf(console, "%s\n", list[i].name)
					}
					if list[i].result, err = trainer.Evaluate(ctx, cfg, list[i].dir, c.String("output"), world, console); err != nil {
						return trainingError(err)
					}
				}
				if !world.Writes() {
					return nil
				}
				if err := printEvaluations(c, cfg, list); err != nil {
					return err
				}
				if dir := c.String("by-turns"); dir != "" {
					return byTurns(c, cfg, list, dir)
				}
				return nil
			})
		},
	}
}

// checkEvaluations prints what the checkpoints would be played with, and what each needs.
func checkEvaluations(c *cli.Context, cfg *config.Config, list []evaluated, console *metrics.Console) error {
	t := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "checkpoint\tparameters\tepisodes\tturns\ttokens\tmemory\tweights\n")
	episodes, turns := 0, 0
	for _, e := range cfg.Validation.Envs {
		episodes, turns = episodes+e.Groups*e.GroupSize, max(turns, e.MaxTurns)
	}
	for _, e := range list {
		opened, err := trainer.CheckEvaluation(cfg, e.dir, console)
		if err != nil {
			return trainingError(fmt.Errorf("%s: %w", e.name, err))
		}
		absent, err := opened.CheckWeights()
		if err != nil {
			return trainingError(fmt.Errorf("%s: %w", e.name, err))
		}
		weights := "there"
		if len(absent) > 0 {
			weights = "not there yet"
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%.1f GiB\t%s\n", e.name, millions(experiment.Parameters(opened.Policy.Shape)), episodes, turns, cfg.Rollout.MaxLength,
			float64(opened.PlanMemory().Peak())/(1<<30), weights)
	}
	return t.Flush()
}

// millions writes a number of parameters.
func millions(n int64) string {
	if n < 10e6 {
		return fmt.Sprintf("%.2f M", float64(n)/1e6)
	}
	return fmt.Sprintf("%.0f M", float64(n)/1e6)
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

// evaluated is a checkpoint with what its validation found.
type evaluated struct {
	name, dir string
	result    *trainer.Evaluation
}

// namedCheckpoints are those of the command line, model.path without any. A name before = is one unless the whole is a directory.
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
func printEvaluations(c *cli.Context, cfg *config.Config, list []evaluated) error {
	if c.Bool("json") {
		out := json.NewEncoder(c.App.Writer)
		for _, e := range list {
			object := map[string]any{}
			for name, v := range e.result.Metrics {
				object[name] = v
			}
			if len(list) > 1 {
				object["checkpoint"], object["parameters"] = e.name, e.result.Parameters
			}
			if err := out.Encode(object); err != nil {
				return err
			}
		}
		return nil
	}
	names := map[string]bool{}
	for _, e := range list {
		for name := range e.result.Metrics {
			names[name] = true
		}
	}
	w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	if len(list) > 1 {
		for _, e := range list {
			fmt.Fprintf(w, "\t%s", e.name)
		}
		fmt.Fprintln(w)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprint(w, name)
		for _, e := range list {
			if v, ok := e.result.Metrics[name]; ok {
				interval := successInterval(cfg, name, v, c.Bool("random"))
				if len(list) > 1 { // a column each
					interval = strings.Replace(interval, "\t", " ", 1)
				}
				fmt.Fprintf(w, "\t%.4f%s", v, interval)
			} else {
				fmt.Fprint(w, "\t-")
			}
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

// turnRow is a checkpoint's success by the end of a turn, with its 95 % interval.
type turnRow struct {
	Checkpoint string  `json:"checkpoint"`
	Parameters int64   `json:"parameters"`
	Turn       int     `json:"turn"`
	Episodes   int     `json:"episodes"`
	Solved     int     `json:"solved"`
	Success    float64 `json:"success"`
	Low        float64 `json:"low"`
	High       float64 `json:"high"`
}

// byTurns prints and saves how many episodes were solved by which turn.
func byTurns(c *cli.Context, cfg *config.Config, list []evaluated, dir string) error {
	most := 0
	for _, e := range cfg.Validation.Envs {
		most = max(most, e.MaxTurns)
	}
	var rows []turnRow
	var curves []plot.TurnCurve
	t := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "\nsolved by turn\tparameters")
	shown := slices.DeleteFunc([]int{1, 2, 3, 5, 10, 15, 20, 25, 50, 100}, func(n int) bool { return n >= most })
	shown = append(shown, most)
	for _, turn := range shown {
		fmt.Fprintf(t, "\t%d", turn)
	}
	fmt.Fprintln(t)
	for _, e := range list {
		curve := plot.TurnCurve{Label: e.name, Episodes: len(e.result.Episodes), Solved: rollout.SolvedBy(e.result.Episodes, most)}
		curves = append(curves, curve)
		fmt.Fprintf(t, "%s\t%s", e.name, millions(e.result.Parameters))
		for turn := 1; turn <= most; turn++ {
			value, low, high := curve.Share(turn)
			rows = append(rows, turnRow{e.name, e.result.Parameters, turn, curve.Episodes, curve.Solved[turn-1], value, low, high})
			if slices.Contains(shown, turn) {
				fmt.Fprintf(t, "\t%.1f%% [%.1f, %.1f]", 100*value, 100*low, 100*high)
			}
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	title := fmt.Sprintf("%s: success by turns", cfg.Run.Name)
	for _, f := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{"success_by_turns.csv", func(w io.Writer) error {
			out := csv.NewWriter(w)
			lines := [][]string{{"checkpoint", "parameters", "turn", "episodes", "solved", "success", "low", "high"}}
			for _, r := range rows {
				lines = append(lines, []string{r.Checkpoint, fmt.Sprint(r.Parameters), fmt.Sprint(r.Turn), fmt.Sprint(r.Episodes), fmt.Sprint(r.Solved), fmt.Sprint(r.Success),
					fmt.Sprint(r.Low), fmt.Sprint(r.High)})
			}
			return out.WriteAll(lines)
		}},
		{"success_by_turns.json", func(w io.Writer) error { return json.NewEncoder(w).Encode(rows) }},
		{"success_by_turns.png", func(w io.Writer) error { return plot.SuccessByTurns(title, curves).Render(w, plot.PrintDPI) }},
	} {
		path := filepath.Join(dir, f.name)
		if err := atomicfile.Write(path, f.write); err != nil {
			return err
		}
		fmt.Fprintln(c.App.Writer, path)
	}
	return nil
}
