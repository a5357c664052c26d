package cli

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/urfave/cli/v2"

	"gyre/internal/atomicfile"
	"gyre/internal/table"
	"gyre/orchestrate/run/rundir"
	"gyre/orchestrate/study/evaluation"
	"gyre/orchestrate/study/runs"
	"gyre/orchestrate/study/ui"
)

func runsCommand() *cli.Command {
	return &cli.Command{
		Name: "runs", Usage: "list the runs of a folder, or compare two", ArgsUsage: "[DIR]",
		Flags: []cli.Flag{jsonFlag()}, Action: listRunFolders,
		Subcommands: []*cli.Command{{
			Name: "diff", Usage: "in what two runs differ", ArgsUsage: "A B",
			Flags: []cli.Flag{toggle("all", "compare every metric"), jsonFlag()}, Action: diffRuns,
		}},
	}
}

func listRunFolders(c *cli.Context) error {
	found, _, err := runs.Find([]string{cmp.Or(c.Args().First(), "runs")})
	if err != nil {
		return openingError(err)
	}
	var list []runs.Summary
	for _, dir := range found {
		s, err := runs.Summarize(dir, runs.OpenSeries(dir))
		if err != nil {
			return err
		}
		list = append(list, s)
	}
	if len(list) == 0 {
		say(c, "note:", "there are no runs here; gyre train makes one")
	}
	return show(c, runs.Table(list))
}

func diffRuns(c *cli.Context) error {
	var list []*rundir.Run
	var dirs []string
	for _, dir := range c.Args().Slice() {
		if !atomicfile.Exists(dir, "run.json") && !atomicfile.Exists(dir, "metrics.jsonl") {
			return Usagef("%s: expected the folder of a run: it has neither run.json nor metrics.jsonl", dir)
		}
		info, err := rundir.ReadInfo(dir)
		if err != nil {
			return err
		}
		list, dirs = append(list, &rundir.Run{Dir: dir, Info: info}), append(dirs, filepath.Clean(dir))
	}
	labels := []string{"a", "b"}
	if !c.Bool("json") {
		labels = runs.Labels(dirs)
	}
	ends, err := runs.Ends(list, labels, c.Bool("all"))
	if err != nil {
		return err
	}
	files := runs.Files(list, labels)
	for i, part := range []struct {
		name, title string
		table       *table.Table
	}{{"configuration", "Configuration", runs.Configurations(list, labels)}, {"build", "Build", runs.Builds(list, labels)},
		{"file", "Files", files}, {"metric", "Metrics at the end", ends}} {
		if c.Bool("json") {
			part.table.Columns[0].Name = part.name
			if err := part.table.WriteJSON(c.App.Writer); err != nil {
				return err
			}
			continue
		}
		if i > 0 {
			fmt.Fprintln(c.App.Writer)
		}
		fmt.Fprintf(c.App.Writer, "%s\n", part.title)
		if len(part.table.Rows) == 0 {
			fmt.Fprintln(c.App.Writer, "  no difference")
			continue
		}
		if err := part.table.Write(c.App.Writer); err != nil {
			return err
		}
		if part.table == files {
			for _, row := range files.Rows {
				fmt.Fprint(c.App.Writer, row[len(row)-1])
			}
		}
	}
	return nil
}

func uiCommand() *cli.Command {
	return &cli.Command{
		Name: "ui", Usage: "see runs, studies, steps and episodes in the browser", ArgsUsage: "[RUN ...]",
		Flags:  []cli.Flag{integer("port", 8090, 0, 65535, "listen on port `N`; 0 = any free one")},
		Action: showPages,
	}
}

// showPages serves the pages until a signal comes, which is the usual end.
func showPages(c *cli.Context) error {
	roots := c.Args().Slice()
	if len(roots) == 0 {
		for _, usual := range []string{"runs", "studies"} {
			if atomicfile.Exists(usual) {
				roots = append(roots, usual)
			}
		}
	}
	if len(roots) == 0 {
		return Usagef("there is no folder runs here: name runs, or folders of runs")
	}
	server, err := ui.New(roots)
	if err != nil {
		return openingError(err)
	}
	server.Paired = evaluation.OfRuns
	return server.Serve(c.Context, strconv.Itoa(c.Int("port")), func(url string) { fmt.Fprintln(c.App.Writer, url) })
}
