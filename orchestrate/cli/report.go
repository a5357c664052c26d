package cli

import (
	"fmt"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"gyre/orchestrate/run/rundir"
	"gyre/orchestrate/study/report"
)

func reportCommand() *cli.Command {
	return &cli.Command{
		Name:      "report",
		Usage:     "write one self-contained HTML page about one or several runs",
		ArgsUsage: "RUN ...",
		Description: `Configuration, outcome, curves, gradient analysis, tables and sample
episodes; of several runs also where they differ. The page needs no network.

   gyre report runs/demo                         to runs/demo/report.html
   gyre report runs/a runs/b -o comparison.html`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "output", Aliases: []string{"o"},
				Usage: "HTML `FILE` to write instead of RUN/report.html"},
		},
		Action: func(c *cli.Context) error {
			if c.Args().Len() == 0 {
				return Usagef("gyre report needs at least one run directory; see gyre report --help")
			}
			var runs []*rundir.Run
			for _, name := range c.Args().Slice() {
				r, err := rundir.Read(name)
				if err != nil {
					return openingError(err)
				}
				runs = append(runs, r)
			}
			path := c.String("output")
			switch {
			case path != "":
			case len(runs) == 1:
				path = runs[0].File("report.html")
			default:
				path = "report.html"
			}
			if err := report.Write(c.Context, runs, path); err != nil {
				return err
			}
			_, err := fmt.Fprintln(c.App.Writer, filepath.Clean(path))
			return err
		},
	}
}
