package cli

import (
	"cmp"
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
		Flags: []cli.Flag{&cli.StringFlag{Name: "output", Aliases: []string{"o"},
			Usage: "HTML `FILE` to write instead of RUN/report.html"}},
		Action: func(c *cli.Context) error {
			var runs []*rundir.Run
			for _, name := range c.Args().Slice() {
				r, err := rundir.Read(name)
				if err != nil {
					return openingError(err)
				}
				runs = append(runs, r)
			}
			path := "report.html"
			if len(runs) == 1 {
				path = runs[0].File(path)
			}
			path = filepath.Clean(cmp.Or(c.String("output"), path))
			if err := report.Write(c.Context, runs, path); err != nil {
				return err
			}
			_, err := fmt.Fprintln(c.App.Writer, path)
			return err
		},
	}
}
