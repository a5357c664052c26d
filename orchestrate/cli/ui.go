package cli

import (
	"fmt"
	"strconv"

	"github.com/urfave/cli/v2"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/study/ui"
)

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
	return server.Serve(c.Context, strconv.Itoa(c.Int("port")), func(url string) { fmt.Fprintln(c.App.Writer, url) })
}
