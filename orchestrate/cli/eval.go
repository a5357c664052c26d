package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gyre/internal/atomicfile"
	"gyre/internal/table"
	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/trainer"
	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/study/evaluation"
)

func evalCommand() *cli.Command {
	return &cli.Command{
		Name: "eval", Usage: "validate a policy: play the fixed validation set and report",
		ArgsUsage: "CONFIG|RUN [RUN|CHECKPOINT ...] [key=value ...]",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "checkpoint",
				Usage: "`[NAME=]DIR`: run, step or Hugging Face directory"},
			text("adapter", "play with model.path and the PEFT adapter in `DIR`"),
			text("output", "write the episodes to this JSONL `FILE`"),
			text("inspect", "write a log of Inspect to `FILE`.eval"),
			toggle("random", "play at random: the baseline of these levels"),
			text("by-turns", "write success by turns to `DIR`: CSV, JSON, PNG"),
			toggle("dry-run", "open all but the weights, print the memory, stop"),
			&cli.Float64Flag{Name: "until-width", Usage: "play until the interval is `P` points wide"},
			&cli.StringFlag{Name: "keep", Value: evaluation.DefaultKeep(), EnvVars: []string{"GYRE_KEEP"},
				Usage: "keep results in `DIR`", DefaultText: "the cache"},
			toggle("fresh", "play anew what is kept"),
			text("endpoint", "play on the OpenAI-compatible server at `URL`"),
			text("served-model", "`NAME` of its model, where it has several"),
			&cli.StringFlag{Name: "endpoint-model", Hidden: true}, // another name of the same
			text("key-env", "variable `NAME` that holds its key"),
			atLeast(1, "concurrency", 16, "ask it `N` requests at once"),
			atLeast(1, "patience", 600, "ask again after `S` seconds at the latest"),
			text("prices", "`IN,OUT`: dollars per million tokens it reads, writes"),
			jsonFlag(), ranksFlag(),
		},
		Action: evaluate,
	}
}

// evaluate plays the validation set with every checkpoint, or at random, and prints what it found.
func evaluate(c *cli.Context) error {
	cfg, err := readConfig(c, playing, checkpointArguments(c)...)
	if err != nil {
		return err
	}
	warnAll(c, cfg.Notes()) // what is to be said of a training was said there
	if err := errors.Join(
		excludes(c, "random", "it plays without a policy, in one process, and keeps no episodes", "checkpoint",
			"adapter", "output", "inspect", "by-turns", "ranks", "dry-run", "endpoint", "until-width"),
		excludes(c, "dry-run", "it says what one process would need", "ranks")); err != nil {
		return err
	}
	if err := checkEndpoint(c); err != nil {
		return err
	}
	if c.Bool("random") {
		result, err := rollout.PlayRandom(c.Context, rollout.ValidationPlan(cfg, 0))
		if err != nil {
			return openingError(err)
		}
		return printEvaluations(c, cfg, []evaluation.Result{{Evaluation: session.Evaluation{Metrics: result}}})
	}
	list, err := evaluatedPolicies(c, cfg)
	if err != nil {
		return err
	}
	for _, flag := range []string{"output", "inspect"} {
		if len(list) > 1 && c.String(flag) != "" {
			return Usagef("--%s takes the episodes of one checkpoint, and there are %d", flag, len(list))
		}
		if info, err := os.Stat(c.String(flag)); err == nil && info.IsDir() {
			return fmt.Errorf("%s is a directory: expected a file for the episodes", c.String(flag))
		}
	}
	if path := c.String("inspect"); path != "" && filepath.Ext(path) != ".eval" {
		return Usagef("--inspect %s: Inspect opens files that end in .eval", path)
	}
	if c.Bool("dry-run") {
		return checkEvaluations(c, cfg, list, metrics.NewConsole(c.App.ErrWriter))
	}
	for _, e := range list {
		if note := evaluation.SampledOtherwise(cfg, cmp.Or(e.policy.Checkpoint, cfg.Model.Path)); note != "" {
			say(c, "note:", note)
		}
	}
	return overRanks(c, cfg, "", func(ctx context.Context, world *ranks.World, console *metrics.Console) error {
		contenders, keep, err := contenders(c, cfg, list, world, console)
		if err != nil {
			return err
		}
		results, err := evaluation.Play(ctx, cfg, contenders, evaluation.Options{Keep: keep,
			Width: c.Float64("until-width"), Console: console})
		if err != nil {
			return openingError(err)
		}
		if !world.Writes() {
			return nil
		}
		return reportEvaluations(c, cfg, contenders[0], results, console)
	})
}

// reportEvaluations prints and writes what was asked for of results.
func reportEvaluations(c *cli.Context, cfg *config.Config, first evaluation.Contender, results []evaluation.Result,
	console *metrics.Console) error {
	prices, priced, err := pricesOf(c)
	if err != nil {
		return err
	}
	for _, r := range results {
		if r.Usage != nil {
			fmt.Fprintf(console, "endpoint: %v\n", *r.Usage)
			if priced {
				fmt.Fprintf(console, "endpoint: these tokens cost $%.4f\n", prices.Cost(*r.Usage))
			}
		}
	}
	if output := c.String("output"); output != "" {
		if err := episode.WriteFile(output, results[0].Episodes); err != nil {
			return err
		}
	}
	if path := c.String("inspect"); path != "" {
		tokenizer, err := chat.Load(first.Tokenizer)
		if err == nil {
			err = results[0].Inspect(cfg, first.Identity).Write(path, tokenizer)
		}
		if err != nil {
			return err
		}
	}
	if err := printEvaluations(c, cfg, results); err != nil || c.String("by-turns") == "" {
		return err
	}
	brief, paths, err := evaluation.ByTurns(cfg.Run.Name+": success by turns", results, cfg.Validation.Envs,
		c.String("by-turns"))
	if err != nil {
		return err
	}
	return printf(c, "\n%s%s\n", brief.Text(table.Room(c.App.Writer)), strings.Join(paths, "\n"))
}

// checkEvaluations prints what the checkpoints would be played with, and what each needs.
func checkEvaluations(c *cli.Context, cfg *config.Config, list []evaluated, console *metrics.Console) error {
	t := table.New("checkpoint", "parameters", "episodes", "turns", "tokens", "memory", "weights")
	episodes, turns := 0, 0
	for _, e := range cfg.Validation.Envs {
		episodes, turns = episodes+e.Groups*e.GroupSize, max(turns, e.MaxTurns)
	}
	for _, e := range list {
		opened, err := session.CheckEvaluation(cfg, e.policy, console)
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

// evaluated is a policy that is to be played with, and its name in tables.
type evaluated struct {
	name   string
	policy session.Evaluated
}

// evaluatedPolicies are those of the command line: of --adapter or --checkpoint, else the run that was given, else
// model.path.
func evaluatedPolicies(c *cli.Context, cfg *config.Config) (out []evaluated, err error) {
	words, others := c.StringSlice("checkpoint"), checkpointArguments(c)
	if dir := c.String("adapter"); dir != "" {
		if len(words)+len(others) > 0 {
			return nil, Usagef("--adapter is played on model.path, so other checkpoints cannot be given: leave "+
				"out %q", slices.Concat(words, others))
		}
		return []evaluated{{filepath.Base(dir), session.Evaluated{Adapter: dir}}}, nil
	}
	if run := runArgument(c); run != "" && (len(words) == 0 || len(others) > 0) {
		words = append([]string{run}, words...)
	}
	words = append(words, others...)
	for _, word := range words {
		name, dir, named := cutName(word)
		if !named {
			name = filepath.Base(strings.TrimSuffix(strings.TrimSuffix(filepath.Clean(dir), "/actor"), "/best"))
		}
		out = append(out, evaluated{name, session.Evaluated{Checkpoint: dir}})
	}
	called := map[string]int{}
	for _, one := range out {
		called[one.name]++
	}
	for i, one := range out {
		if called[one.name] > 1 { // the same step of two runs, say
			out[i].name = one.policy.Checkpoint
		}
	}
	if out == nil {
		return []evaluated{{name: filepath.Base(cfg.Model.Path)}}, nil
	}
	return out, nil
}

// cutName takes [NAME=]DIR apart. A name before = is one unless the whole is a directory.
func cutName(word string) (name, dir string, named bool) {
	name, dir, named = strings.Cut(word, "=")
	if !named || atomicfile.Exists(word) {
		return "", word, false
	}
	return name, dir, true
}

// checkpointArguments are the runs and checkpoints that stand behind the first argument.
func checkpointArguments(c *cli.Context) (dirs []string) {
	for _, word := range c.Args().Tail() {
		if !strings.Contains(word, "=") { // one that is not there is refused where it is opened
			dirs = append(dirs, word)
		}
	}
	return dirs
}

// printEvaluations prints the metrics, a column per checkpoint, and how the others differ from the first.
func printEvaluations(c *cli.Context, cfg *config.Config, list []evaluation.Result) error {
	if c.Bool("json") {
		if err := evaluation.WriteJSON(c.App.Writer, list); err != nil {
			return err
		}
		return evaluation.Differences(list).WriteJSON(c.App.Writer)
	}
	err := evaluation.Metrics(list, cfg.Validation.Envs, c.Bool("random")).Write(c.App.Writer)
	if how := evaluation.Intervals(list); err == nil && how != "" {
		err = printf(c, "\n%s\n", how)
	}
	differences, changed := evaluation.Differences(list), evaluation.Changed(list)
	if err != nil || len(differences.Rows) == 0 {
		return err
	}
	if all := len(changed.Rows); all > 0 {
		changed.Rows = changed.Rows[:min(all, mostChanged)]
		fmt.Fprintf(c.App.Writer, "\nTasks that changed sides (%d of %d; half of the episodes solved or not)\n",
			len(changed.Rows), all)
		if err := changed.Write(c.App.Writer); err != nil {
			return err
		}
	}
	// the answer comes last, where people look
	fmt.Fprintf(c.App.Writer, "\nAgainst %s, task by task (95 %% intervals; p: sign test of up and down)\n",
		list[0].Name)
	return differences.Write(c.App.Writer)
}

// mostChanged is how many of the tasks that changed sides people are shown.
const mostChanged = 20

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
					return printf(c, "%s", result.Text)
				}
				line, err := metrics.Encode(result.Step, result.Values)
				if err != nil {
					return err
				}
				return printf(c, "%s", line)
			})
		},
	}
}
