package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
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
		Name:  "data",
		Usage: "prepare, show, split and check files of prompts and answers",
		Subcommands: []*cli.Command{
			dataPrepareCommand(),
			dataDemonstrationsCommand(),
			{
				Name: "show", Usage: "print rows as a run sees them", ArgsUsage: "FILE",
				Description: "gyre data show data/math500/train.parquet --rows 2\n\nFILE is .json (a list), .jsonl " +
					"or .parquet.",
				Flags: append(fieldFlags(),
					&cli.IntFlag{Name: "rows", Value: 3, Usage: "how many; 0 = all"},
					&cli.IntFlag{Name: "from", Usage: "index of the first `ROW`"},
					&cli.BoolFlag{Name: "json", Usage: "print JSON lines with every column"}),
				Action: dataShow,
			},
			{
				Name: "split", Usage: "hold out rows for validation", ArgsUsage: "FILE DIR",
				Description: "gyre data split problems.jsonl data/mine --validation 100 --seed 1\n\n" +
					"Writes DIR/train and DIR/test in FILE's format. Rows with the same problem\nstay on the same side.",
				Flags: []cli.Flag{
					&cli.IntFlag{Name: "validation", Required: true, Usage: "hold out `N` rows"},
					&cli.Int64Flag{Name: "seed", Value: 1, Usage: "of the draw"},
				},
				Action: dataSplit,
			},
			{
				Name: "check", Usage: "find duplicates, leaks and answers that cannot score", ArgsUsage: "FILE",
				Description: "gyre data check math500/train.parquet --against math500/test.parquet\n\n" +
					"Ends with code 1 when problems are shared with the other file, answers are\n" +
					"missing or would not score, or prompts are too long.",
				Flags: append(fieldFlags(),
					&cli.StringFlag{Name: "against", Usage: "`FILE` whose problems must not occur"},
					&cli.StringFlag{Name: "model", Usage: "measure prompts in tokens of the model in `DIR`"},
					&cli.IntFlag{Name: "max-prompt", Usage: "longest prompt, in tokens or else characters"},
					jsonFlag()),
				Action: dataCheck,
			},
		},
	}
}

func fieldFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "question", Usage: "`COLUMN` of the problems, where it is not found by name"},
		&cli.StringFlag{Name: "answer", Usage: "`COLUMN` of the answers, where it is not found by name"},
	}
}

// oneFile loads the one argument of a command.
func oneFile(c *cli.Context) (*dataset.Set, error) {
	if c.NArg() != 1 {
		return nil, Usagef("%s needs one FILE, got %d arguments", c.Command.HelpName, c.NArg())
	}
	return loadSet(c, c.Args().First())
}

func loadSet(c *cli.Context, path string) (*dataset.Set, error) {
	set, err := dataset.Load(path, dataset.Fields{Question: c.String("question"), Answer: c.String("answer")})
	if err != nil {
		return nil, Usagef("%w", err)
	}
	return set, nil
}

func dataShow(c *cli.Context) error {
	set, err := oneFile(c)
	if err != nil {
		return err
	}
	from, count := c.Int("from"), c.Int("rows")
	if from < 0 || from >= len(set.Rows) {
		return Usagef("--from: %s has rows 0 to %d, got %d", set.Path, len(set.Rows)-1, from)
	}
	if count <= 0 {
		count = len(set.Rows)
	}
	rows := set.Rows[from:min(from+count, len(set.Rows))]
	out := c.App.Writer
	if c.Bool("json") {
		results := lines(out)
		for _, row := range rows {
			if err := results.Encode(map[string]any{"row": row.Index, "id": row.ID, "source": row.Source,
				"prompt": row.Prompt,
				"gold":   row.Gold, "columns": row.Columns}); err != nil {
				return err
			}
		}
		return nil
	}
	fmt.Fprintf(out, "%s: %d rows, SHA-256 %s\n", set.Path, len(set.Rows), set.Hash)
	for _, row := range rows {
		fmt.Fprintf(out, "\nrow %d, %s, id %s\n", row.Index, row.Source, row.ID)
		for _, m := range row.Prompt {
			fmt.Fprintf(out, "[%s] %s\n", m.Role, m.Content)
		}
		if _, err := fmt.Fprintf(out, "answer: %s\n", row.Gold); err != nil {
			return err
		}
	}
	return nil
}

func dataSplit(c *cli.Context) error {
	if c.NArg() != 2 {
		return Usagef("%s needs FILE and DIR, got %d arguments", c.Command.HelpName, c.NArg())
	}
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
	_, err = fmt.Fprintf(c.App.Writer, "%s: %d rows for training, %d for validation (seed %d)\n", dir, len(train),
		len(held), c.Int64("seed"))
	return err
}

func dataCheck(c *cli.Context) error {
	set, err := oneFile(c)
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
		err = printJSON(c.App.Writer, report)
	} else {
		err = printReport(c.App.Writer, report)
	}
	var problems []string
	note := func(rows []int, what string) {
		if len(rows) > 0 {
			problems = append(problems, fmt.Sprintf("%d %s (%s)", len(rows), what, some(rows)))
		}
	}
	note(report.Shared, "problems also occur in "+c.String("against"))
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

func printReport(w io.Writer, r dataset.Report) error {
	fmt.Fprintf(w, "%s\n  rows              %d\n  SHA-256           %s\n", r.Path, r.Rows, r.SHA256)
	for _, source := range slices.Sorted(maps.Keys(r.Sources)) {
		fmt.Fprintf(w, "  source            %s: %d\n", source, r.Sources[source])
	}
	for _, line := range []struct {
		what string
		rows []int
	}{{"duplicates", r.Duplicates}, {"shared problems", r.Shared}, {"without answer", r.NoAnswer},
		{"answers unscored", r.Unscored}} {
		fmt.Fprintf(w, "  %-17s %d %s\n", line.what, len(line.rows), some(line.rows))
	}
	_, err := fmt.Fprintf(w,
		"  answers rewritten %d by the MATH rules: a grader that leaves the gold answer alone marks a verbatim reply "+
			"to them wrong\n  prompts           %d to %d %s, median %d\n", r.Changed, r.Shortest, r.Longest, r.Unit,
		r.Median)
	return err
}

// some names the first few rows.
func some(rows []int) string {
	const shown = 5
	switch {
	case len(rows) == 0:
		return ""
	case len(rows) > shown:
		return fmt.Sprintf("rows %s, …", strings.Trim(strings.ReplaceAll(fmt.Sprint(rows[:shown]), " ", ", "), "[]"))
	}
	return "rows " + strings.Trim(strings.ReplaceAll(fmt.Sprint(rows), " ", ", "), "[]")
}

func printJSON(w io.Writer, value any) error {
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	return out.Encode(value)
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }
