package cli

import (
	"os"

	"github.com/urfave/cli/v2"

	"gyre/orchestrate/study/demo"
)

func demoCommand() *cli.Command {
	return &cli.Command{
		Name:      "demo",
		Usage:     "train and analyse a small Sokoban agent, from nothing to a report",
		ArgsUsage: "[key=value ...]",
		Flags:     []cli.Flag{withDefault("dir", ".", "where configs/, models/ and runs/ go")},
		Action: func(c *cli.Context) error {
			program, err := os.Executable()
			if err != nil {
				return err
			}
			dir := c.String("dir")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			d := demo.Demo{Program: program, Dir: dir, Stdout: c.App.Writer, Stderr: c.App.ErrWriter,
				Overrides: c.Args().Slice()}
			return d.Run(c.Context)
		},
	}
}
