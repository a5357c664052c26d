package cli

import (
	"errors"
	"os"

	"github.com/urfave/cli/v2"

	"gyre/orchestrate/study/demo"
)

func demoCommand() *cli.Command {
	return &cli.Command{
		Name:      "demo",
		Usage:     "train and analyse a small Sokoban agent, from nothing to a report",
		ArgsUsage: "[key=value ...]",
		Description: `Takes about three minutes of two cores. Run again, it continues where it
stopped. Models and runs go into --dir; what is there of an earlier demo
stays.

   gyre demo --dir gyre-demo`,
		Flags: []cli.Flag{&cli.StringFlag{Name: "dir", Value: ".", Usage: "where configs/, models/ and runs/ go"}},
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
			err = d.Run(c.Context)
			if step := (*demo.StepError)(nil); errors.As(err, &step) {
				return &ExitError{Code: step.ExitCode(), Err: err}
			}
			return err
		},
	}
}
