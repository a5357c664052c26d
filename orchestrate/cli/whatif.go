package cli

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"gyre/internal/table"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
	"gyre/orchestrate/study/evaluation"
	"gyre/orchestrate/study/whatif"
)

func whatIfCommand() *cli.Command {
	repeated := func(name, usage string) cli.Flag {
		return &cli.StringSliceFlag{Name: name, Usage: usage}
	}
	return &cli.Command{
		Name: "what-if", Usage: "run the other history of a training, from a checkpoint on", ArgsUsage: "RUN",
		Flags: []cli.Flag{
			atLeast(0, "from", 0, "begin after step `N`"),
			atLeast(1, "until", 0, "end after step `N`"),
			repeated("without", "leave out group=G, env=TAG, `row=NAME`"),
			repeated("with", "set `KEY=VALUE` otherwise"),
			repeated("replace-reward", "another weight: `NAME=WEIGHT`"),
			text("leave-one-out", "a history without each of the first `groups`"),
			atLeast(1, "top", 8, "with --leave-one-out: how many"),
			atLeast(1, "slots", 1, "histories at a time"),
			text("name", "of the history; what is changed by default"),
			toggle("other-files", "scripts and data may have changed"),
			toggle("dry-run", "check the question, say what would be run"),
		},
		Action: whatIf,
	}
}

func whatIf(c *cli.Context) error {
	if c.NArg() != 1 {
		return Usagef("gyre what-if needs the directory of one run, got %d arguments", c.NArg())
	}
	if !c.IsSet("from") {
		return Usagef("--from N is missing: the step of the checkpoint that the other history begins at")
	}
	q := whatif.Question{From: c.Int("from"), Until: c.Int("until"), Without: c.StringSlice("without"),
		With: c.StringSlice("with"), Rewards: c.StringSlice("replace-reward"), Name: c.String("name"),
		OtherFiles: c.Bool("other-files")}
	switch what := c.String("leave-one-out"); {
	case what != "" && what != "groups":
		return Usagef("--leave-one-out %q, expected groups", what)
	case what != "" && q.Name != "":
		return Usagef("--name is of one history, but --leave-one-out makes several")
	case what != "":
		q.LeaveOut = c.Int("top")
	case c.IsSet("top"):
		return Usagef("--top is for --leave-one-out groups")
	}
	run, err := rundir.Read(c.Args().First())
	if err != nil {
		return err
	}
	histories, err := whatif.Plan(run, q)
	if err != nil {
		return Usagef("%w", err)
	}
	if c.Bool("dry-run") {
		for _, h := range histories {
			if err := printf(c, "%s: steps %d to %d, %s\n", h.Dir(), h.Step+1, h.Until,
				cmp.Or(strings.Join(h.Changes, ", "), "unchanged")); err != nil {
				return err
			}
		}
		return nil
	}
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	console := metrics.NewConsole(c.App.ErrWriter)
	if err := whatif.Execute(c.Context, histories, whatif.Options{Command: binary, Slots: c.Int("slots"),
		Console: console}); err != nil {
		return err
	}
	answer, err := whatif.Compare(histories, func(list []whatif.Played) *table.Table {
		var results []evaluation.Result
		for _, p := range list {
			results = append(results, evaluation.Result{Name: p.Name, Evaluation: session.Evaluation{Episodes: p.Episodes}})
		}
		return evaluation.Differences(results)
	})
	if err != nil {
		return err
	}
	return printAnswer(c, answer)
}

func printAnswer(c *cli.Context, a *whatif.Answer) error {
	parts := []struct {
		head string
		of   *table.Table
	}{{"", a.Reach}, {"\nTraining, means over the steps that both have\n", a.Training},
		{fmt.Sprintf("\nValidation after step %d, task by task\n", a.Validated), a.Validation}}
	for _, part := range parts {
		if part.of == nil || len(part.of.Rows) == 0 {
			continue
		}
		if err := printf(c, "%s", part.head); err != nil {
			return err
		}
		if err := part.of.Write(c.App.Writer); err != nil {
			return err
		}
	}
	if a.Validation == nil {
		warn(c, "the run and its other history share no validation: their episodes cannot be compared "+
			"(run.validate_every, run.save_rollouts)")
	}
	fmt.Fprintf(c.App.ErrWriter, "files: %s\n", strings.Join(a.Files, " "))
	return nil
}
