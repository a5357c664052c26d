package cli

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gyre/envs/reward"
	"gyre/internal/dataset"
	"gyre/orchestrate/model/chat"
)

func dataCommand() *cli.Command {
	return &cli.Command{
		Name: "data", Usage: "prepare, show, split and check files of prompts and answers",
		Subcommands: []*cli.Command{
			dataPrepareCommand(),
			dataDemonstrationsCommand(),
			{
				Name: "show", Usage: "print rows as a run sees them", ArgsUsage: "FILE",
				Flags: []cli.Flag{questionFlag(), answerFlag(),
					atLeast(0, "rows", 3, "how many; 0 = all"),
					atLeast(0, "from", 0, "index of the first `ROW`"),
					toggle("json", "print JSON lines with every column")},
				Action: dataShow,
			},
			{
				Name: "split", Usage: "hold out rows for validation", ArgsUsage: "FILE DIR",
				Flags: []cli.Flag{&cli.IntFlag{Name: "validation", Required: true, Usage: "hold out `N` rows"},
					&cli.Int64Flag{Name: "seed", Value: 1, Usage: "of the draw"}},
				Action: dataSplit,
			},
			{
				Name: "check", Usage: "find duplicates, leaks and answers that cannot score", ArgsUsage: "FILE",
				Flags: []cli.Flag{questionFlag(), answerFlag(),
					text("against", "`FILE` whose problems must not occur"),
					text("model", "measure prompts in tokens of the model in `DIR`"),
					atLeast(1, "max-prompt", 0, "longest prompt, in tokens or else characters"),
					jsonFlag()},
				Action: dataCheck,
			},
		},
	}
}

func loadSet(c *cli.Context, path string) (*dataset.Set, error) {
	set, err := dataset.Load(path, dataset.Fields{Question: c.String("question"), Answer: c.String("answer")})
	if err != nil {
		return nil, Usagef("%w", err)
	}
	return set, nil
}

func dataShow(c *cli.Context) error {
	set, err := loadSet(c, c.Args().First())
	if err != nil {
		return err
	}
	from, last := c.Int("from"), set.Rows[len(set.Rows)-1].Index
	if from > last {
		return Usagef("--from: %s has rows 0 to %d, got %d", set.Path, last, from)
	}
	rows := slices.DeleteFunc(slices.Clone(set.Rows), func(r dataset.Row) bool { return r.Index < from })
	if n := c.Int("rows"); n > 0 {
		rows = rows[:min(n, len(rows))]
	}
	out := c.App.Writer
	if !c.Bool("json") {
		fmt.Fprintf(out, "%s: %d rows, SHA-256 %s\n", set.Path, len(set.Rows), set.Hash)
	}
	for _, note := range set.Notes() {
		warn(c, note)
	}
	for _, row := range rows {
		if c.Bool("json") {
			err = write(lines(out), map[string]any{"row": row.Index, "id": row.ID, "source": row.Source,
				"prompt": row.Prompt, "gold": row.Gold, "columns": row.Columns})
		} else {
			fmt.Fprintf(out, "\nrow %d, %s, id %s\n", row.Index, row.Source, row.ID)
			for _, m := range row.Prompt {
				fmt.Fprintf(out, "[%s] %s\n", m.Role, m.Content)
			}
			_, err = fmt.Fprintf(out, "answer: %s\n", row.Gold)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func dataSplit(c *cli.Context) error {
	path, dir := c.Args().Get(0), c.Args().Get(1)
	table, err := dataset.Read(path)
	if err != nil {
		return Usagef("%w", err)
	}
	n := c.Int("validation")
	if n < 1 || n >= len(table.Rows) {
		return Usagef("--validation: %s has %d rows, expected 1 to %d, got %d", path, len(table.Rows),
			len(table.Rows)-1, n)
	}
	train, held := dataset.Split(table, n, c.Int64("seed"))
	ending := strings.ToLower(filepath.Ext(path))
	for name, indices := range map[string][]int{"train": train, "test": held} {
		if err := table.WriteRows(filepath.Join(dir, name+ending), indices); err != nil {
			return err
		}
	}
	return printf(c, "%s: %d rows for training, %d for validation (seed %d)\n", dir, len(train), len(held),
		c.Int64("seed"))
}

func dataCheck(c *cli.Context) error {
	set, err := loadSet(c, c.Args().First())
	if err != nil {
		return err
	}
	var against *dataset.Set
	if path := c.String("against"); path != "" {
		if against, err = loadSet(c, path); err != nil {
			return err
		}
	}
	measure := dataset.Characters
	if dir := c.String("model"); dir != "" {
		measure.Unit = "tokens"
		if measure.Of, err = chat.CountTokens(dir); err != nil {
			return Usagef("--model: %w", err)
		}
	}
	report, err := dataset.Check(set, against, measure, func(row dataset.Row, reply string) bool {
		return reward.GradeReply(reply, row.Gold, reward.Strict).Correct
	})
	if err != nil {
		return err
	}
	if c.Bool("json") {
		err = printJSON(c, report)
	} else {
		err = printReport(c, report)
	}
	var problems []string
	note := func(rows []int, what string) {
		if len(rows) > 0 {
			problems = append(problems, fmt.Sprintf("%d %s (%s)", len(rows), what, dataset.Named(rows)))
		}
	}
	note(report.Shared, "problems also occur in "+c.String("against"))
	note(report.NoQuestion, "have no question")
	note(report.NoAnswer, "have no answer")
	note(report.Unscored, "answers do not score when given back")
	if limit := c.Int("max-prompt"); limit > 0 && report.Longest > limit {
		problems = append(problems, fmt.Sprintf("the longest prompt has %d %s, more than %d", report.Longest,
			report.Unit, limit))
	}
	if len(problems) > 0 {
		err = errors.Join(err, fmt.Errorf("%s: %s", set.Path, strings.Join(problems, "; ")))
	}
	return err
}

func printReport(c *cli.Context, r dataset.Report) error {
	w := c.App.Writer
	fmt.Fprintf(w, "%s\n  rows              %d\n  SHA-256           %s\n", r.Path, r.Rows, r.SHA256)
	for _, source := range slices.Sorted(maps.Keys(r.Sources)) {
		fmt.Fprintf(w, "  source            %s: %d\n", source, r.Sources[source])
	}
	for _, l := range []struct {
		what string
		rows []int
	}{{"duplicates", r.Duplicates}, {"  other answer", r.OtherAnswer}, {"same id", r.SameID}, {"shared problems", r.Shared}, {"without question", r.NoQuestion},
		{"without answer", r.NoAnswer}, {"text left out", r.LeftOut}, {"answers unscored", r.Unscored}} {
		fmt.Fprintf(w, "  %-18s%d %s\n", l.what, len(l.rows), dataset.Named(l.rows))
	}
	return printf(c, `  answers rewritten %d by the MATH rules: a grader that leaves the gold answer alone marks a verbatim reply wrong
  prompts           %d to %d %s, median %d
`, r.Changed, r.Shortest, r.Longest, r.Unit, r.Median)
}
