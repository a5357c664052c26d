package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gyre/internal/atomicfile"
	"gyre/internal/figure"
	"gyre/internal/table"
	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/study/plot"
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
					return openingError(err)
				}
				return printEvaluations(c, cfg, []evaluated{{result: &session.Evaluation{Metrics: result}}})
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
				for i := range list {
					if len(list) > 1 {
						fmt.Fprintf(console, "%s\n", list[i].name)
					}
					if list[i].result, err = session.Evaluate(ctx, cfg, list[i].dir, c.String("output"), world, console); err != nil {
						return openingError(err)
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
		t.Add(e.name, parameters(experiment.Parameters(opened.Policy.Shape)), episodes, turns, cfg.Rollout.MaxLength,
			gibibytes(opened.PlanMemory().Peak()), weights)
	}
	return show(c, t)
}

// gibibytes is a number of bytes that people read in GiB.
func gibibytes(n int64) table.Cell {
	return table.Cell{Value: n, Text: fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))}
}

// parameters is a number of parameters that people read in millions.
func parameters(n int64) table.Cell {
	if n < 10e6 {
		return table.Cell{Value: n, Text: fmt.Sprintf("%.2f M", float64(n)/1e6)}
	}
	return table.Cell{Value: n, Text: fmt.Sprintf("%.0f M", float64(n)/1e6)}
}

// evaluated is a checkpoint with what its validation found.
type evaluated struct {
	name, dir string
	result    *session.Evaluation
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
	t := table.New("metric")
	for _, e := range list {
		head := e.name
		if len(list) == 1 {
			head = "value"
		}
		t.Columns = append(t.Columns, table.Column{Name: e.name, Head: head, Format: "%.4f"})
	}
	for _, name := range evaluationOrder(list) {
		row := []any{name}
		for _, e := range list {
			v, ok := e.result.Metrics[name]
			if n := episodesOf(cfg, name, c.Bool("random")); ok && n > 0 {
				cell := table.Share(v, n)
				cell.Text += fmt.Sprintf(" of %d", n)
				row = append(row, cell)
			} else if ok {
				row = append(row, v)
			} else {
				row = append(row, nil)
			}
		}
		t.Add(row...)
	}
	return t.Write(c.App.Writer)
}

// evaluationOrder is the names of the metrics that people read: successes first, then the rest in alphabetical order. Means over the episodes in
// which a metric is not zero are for --json: that of a success is 1.
func evaluationOrder(list []evaluated) []string {
	names := map[string]bool{}
	for _, e := range list {
		for name := range e.result.Metrics {
			if !strings.Contains(name, "/non-zero/") {
				names[name] = true
			}
		}
	}
	order := slices.Sorted(maps.Keys(names))
	slices.SortStableFunc(order, func(a, b string) int {
		rank := func(name string) int {
			if strings.HasSuffix(name, "/success") {
				return 0
			}
			return 1
		}
		return cmp.Compare(rank(a), rank(b))
	})
	return order
}

// episodesOf is the number of independent episodes that a share of successes is over; 0 for other metrics.
func episodesOf(cfg *config.Config, name string, random bool) (n int) {
	for _, e := range cfg.Validation.Envs {
		switch {
		case name != e.Tag+"/success":
		case random: // plays each group's state once
			n += e.Groups
		default:
			n += e.Groups * e.GroupSize
		}
	}
	return n
}

// byTurns prints and saves how many episodes were solved by which turn.
func byTurns(c *cli.Context, cfg *config.Config, list []evaluated, dir string) error {
	most := 0
	for _, e := range cfg.Validation.Envs {
		most = max(most, e.MaxTurns)
	}
	var curves []plot.TurnCurve
	shown := slices.DeleteFunc([]int{1, 2, 3, 5, 10, 15, 20, 25, 50, 100}, func(n int) bool { return n >= most })
	shown = append(shown, most)
	all, brief := table.New("checkpoint", "parameters", "turn", "episodes", "solved", "success", "low", "high"), table.New("solved by turn", "parameters")
	for _, turn := range shown {
		brief.Columns = append(brief.Columns, table.Column{Name: fmt.Sprint(turn)})
	}
	for _, e := range list {
		curve := plot.TurnCurve{Label: e.name, Episodes: len(e.result.Episodes), Solved: rollout.SolvedBy(e.result.Episodes, most)}
		curves = append(curves, curve)
		row := []any{e.name, parameters(e.result.Parameters)}
		for turn := 1; turn <= most; turn++ {
			value, low, high := curve.Share(turn)
			all.Add(e.name, e.result.Parameters, turn, curve.Episodes, curve.Solved[turn-1], value, low, high)
			if slices.Contains(shown, turn) {
				row = append(row, table.Share(value, curve.Episodes))
			}
		}
		brief.Add(row...)
	}
	fmt.Fprintln(c.App.Writer)
	if err := brief.Write(c.App.Writer); err != nil {
		return err
	}
	drawn := plot.SuccessByTurns(cfg.Run.Name+": success by turns", curves)
	for _, f := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{"success_by_turns.csv", all.WriteCSV},
		{"success_by_turns.json", all.WriteJSONArray},
		{drawn.Name, func(w io.Writer) error { return drawn.PNG(w, figure.PrintDPI) }},
	} {
		path := filepath.Join(dir, f.name)
		if err := atomicfile.Write(path, f.write); err != nil {
			return err
		}
		fmt.Fprintln(c.App.Writer, path)
	}
	return nil
}
