package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"gyre/orchestrate/plot"
	"gyre/orchestrate/rundir"
)

func plotCommand() *cli.Command {
	dpi := func() cli.Flag {
		return &cli.IntFlag{Name: "dpi", Value: plot.PrintDPI, Usage: "resolution of the pictures",
			Action: func(_ *cli.Context, n int) error {
				if n < 30 || n > 1200 {
					return Usagef("--dpi is %d, expected 30 to 1200", n)
				}
				return nil
			}}
	}
	return &cli.Command{
		Name:      "plot",
		Usage:     "draw the training curves and gradient analyses of a run",
		ArgsUsage: "RUN",
		Description: `RUN is a run directory or a metrics.jsonl. PNG, JSON and CSV files go to
RUN/plots; their paths are printed.

   gyre plot runs/demo                   curves and every analysed step
   gyre plot runs/demo --list-steps      the analysed steps
   gyre plot runs/demo --step 1 51 101   the gradients of these steps only
   gyre plot steps --step0-dir A --step20-dir B --step40-dir C`,
		Flags: []cli.Flag{
			&cli.IntSliceFlag{Name: "step", Usage: "draw step `N` only; several may be given"},
			&cli.BoolFlag{Name: "list-steps", Usage: "print the steps whose gradients were analysed"},
			&cli.StringFlag{Name: "output-dir", Usage: "write to `DIR` instead of RUN/plots"},
			dpi(),
			&cli.BoolFlag{Name: "prefilter", Usage: "the unfiltered episodes, to RUN/plots/prefilter"},
		},
		Action: plotRun,
		Subcommands: []*cli.Command{{
			Name:  "steps",
			Usage: "compare three exported steps in one figure",
			Description: `Each DIR holds a metrics.json or one gradient_analysis_metrics_step_N.json,
as gyre plot writes it. Rows are named after the steps in the files, or after
the flags where the files name none.

   gyre plot steps --mode ppo --step0-dir a/plots --step20-dir b/plots \\
     --step40-dir c/plots --out grid.png`,
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "mode", Value: "grpo", Usage: "grpo or ppo: the figure's title"},
				&cli.StringFlag{Name: "step0-dir", Required: true, Usage: "`DIR` of the first step"},
				&cli.StringFlag{Name: "step20-dir", Required: true, Usage: "`DIR` of the second step"},
				&cli.StringFlag{Name: "step40-dir", Required: true, Usage: "`DIR` of the third step"},
				&cli.StringFlag{Name: "out", Value: "icml_step0_20_40_grid.png", Usage: "PNG `FILE` to write"},
				dpi(),
			},
			Action: plotSteps,
		}},
	}
}

func plotRun(c *cli.Context) error {
	name, steps, err := plotArguments(c.Args().Slice(), c.IntSlice("step"))
	if err != nil {
		return err
	}
	run, err := rundir.Read(name)
	if err != nil {
		return err
	}
	note := func(text string) {
		fmt.Fprintf(c.App.ErrWriter, "%s %s\n", paint(c.App.ErrWriter, yellow, "note:"), text)
	}
	if c.Bool("list-steps") {
		analysed := plot.AnalysedSteps(run, c.Bool("prefilter"))
		for _, step := range analysed {
			fmt.Fprintln(c.App.Writer, step)
		}
		if len(analysed) == 0 {
			note("no step has a gradient analysis")
		}
		return run.Broken
	}
	err = plot.Draw(c.Context, run, plot.Options{
		Dir: c.String("output-dir"), Steps: steps, DPI: c.Int("dpi"), Prefilter: c.Bool("prefilter"),
		Wrote: func(path string) { fmt.Fprintln(c.App.Writer, path) },
		Note:  note,
	})
	var missing *plot.StepsError
	if errors.As(err, &missing) {
		return &ExitError{Code: exitUsage, Err: err}
	}
	return err
}

// plotArguments tells RUN from further step numbers: "--step 1 51 RUN" and "RUN --step 1 51" both arrive with 1 as the flag's value
// and the rest as arguments.
func plotArguments(args []string, steps []int) (run string, all []int, err error) {
	var names []string
	for _, arg := range args {
		if n, err := strconv.Atoi(arg); err == nil && len(steps) > 0 && len(args) > 1 {
			steps = append(steps, n)
			continue
		}
		names = append(names, arg)
	}
	if len(names) != 1 {
		return "", nil, Usagef("gyre plot needs one run directory or metrics.jsonl, got %d: %q; see gyre plot --help", len(names), names)
	}
	return names[0], steps, nil
}

func plotSteps(c *cli.Context) error {
	mode := strings.ToUpper(c.String("mode"))
	if mode != "GRPO" && mode != "PPO" {
		return Usagef("--mode is %q, expected grpo or ppo", c.String("mode"))
	}
	dirs := []plot.StepDir{{Step: 0, Path: c.String("step0-dir")}, {Step: 20, Path: c.String("step20-dir")}, {Step: 40, Path: c.String("step40-dir")}}
	if err := plot.DrawSteps(c.Context, mode+": gradient analysis over training", dirs, c.String("out"), c.Int("dpi")); err != nil {
		return err
	}
	fmt.Fprintln(c.App.Writer, c.String("out"))
	return nil
}
