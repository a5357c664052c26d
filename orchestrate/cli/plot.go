package cli

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"gyre/orchestrate/run/rundir"
	"gyre/orchestrate/study/plot"
)

func plotCommand() *cli.Command {
	return &cli.Command{
		Name:      "plot",
		Usage:     "draw the training curves and gradient analyses of a run",
		ArgsUsage: "RUN",
		Description: `RUN is a run directory or a metrics.jsonl. PNG, JSON and CSV files go to
RUN/plots; their paths are printed.

   gyre plot runs/demo                   curves and every analysed step
   gyre plot runs/demo --terminal        validation success, here
   gyre plot runs/demo --list-steps      the analysed steps
   gyre plot runs/demo --step 1 51 101   the gradients of these steps only
   gyre plot steps --step0-dir A --step20-dir B --step40-dir C`,
		Flags: []cli.Flag{
			&cli.IntSliceFlag{Name: "step", Usage: "draw step `N` only; several may be given"},
			&cli.BoolFlag{Name: "list-steps", Usage: "print the steps whose gradients were analysed"},
			&cli.BoolFlag{Name: "terminal", Usage: "print the curve of validation success instead"},
			&cli.StringFlag{Name: "output-dir", Usage: "write to `DIR` instead of RUN/plots"},
			dpiFlag(),
			&cli.BoolFlag{Name: "prefilter", Usage: "the unfiltered episodes, to RUN/plots/prefilter"},
		},
		Action: plotRun,
		Subcommands: []*cli.Command{{
			Name:      "steps",
			Usage:     "draw exported analyses: of a W&B run, or of three steps",
			ArgsUsage: "[HISTORY]",
			Description: `HISTORY is a run, or the history of a W&B run: scripts/wandb_history.py
writes it to a folder. The files of each analysed step go to
gradient_analysis_outputs/NAME_ID. Without it, three exported steps are
compared; each DIR holds a metrics.json or one
gradient_analysis_metrics_step_N.json, as gyre plot writes it.

   python3 scripts/wandb_history.py me/project/abcd1234 taken
   gyre plot steps taken --step 1 11 --output-dir drawn
   gyre plot steps --mode ppo --step0-dir a/plots --step20-dir b/plots \\
     --step40-dir c/plots --out grid.png`,
			Flags: []cli.Flag{
				&cli.BoolFlag{Name: "list-steps", Usage: "print the analysed steps of HISTORY"},
				&cli.IntSliceFlag{Name: "step", Usage: "draw step `N` only; several may be given"},
				&cli.StringFlag{Name: "output-dir", Usage: "write the files of HISTORY to `DIR`"},
				&cli.StringFlag{Name: "mode", Value: "grpo", Usage: "grpo or ppo: the figure's title"},
				&cli.StringFlag{Name: "step0-dir", Usage: "`DIR` of the first step"},
				&cli.StringFlag{Name: "step20-dir", Usage: "`DIR` of the second step"},
				&cli.StringFlag{Name: "step40-dir", Usage: "`DIR` of the third step"},
				&cli.StringFlag{Name: "out", Value: "icml_step0_20_40_grid.png", Usage: "PNG `FILE` to write"},
				dpiFlag(),
			},
			Action: plotSteps,
		}, {
			Name:      "signal",
			Usage:     "compare analyses, and say what their intervals say",
			ArgsUsage: "COLUMN/ROW=DIR ...",
			Description: `Each DIR is a run or the output of gyre analyze; its last analysed step
counts. The figure has a column per COLUMN and a row per ROW, and a sentence
per column is printed.

   gyre plot signal 'centred returns/before=a' 'centred returns/after=b' \
     'divided returns/before=c' 'divided returns/after=d' --out signal.png`,
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "title", Value: "Where the gradient comes from", Usage: "the figure's `TITLE`"},
				&cli.StringFlag{Name: "out", Value: "signal.png", Usage: "PNG `FILE` to write"},
				dpiFlag(),
			},
			Action: plotSignal,
		}},
	}
}

func plotSignal(c *cli.Context) error {
	var list []plot.Signal
	for _, arg := range c.Args().Slice() {
		place, dir, ok := strings.Cut(arg, "=")
		column, row, ok2 := strings.Cut(place, "/")
		if !ok || !ok2 || column == "" || row == "" || dir == "" {
			return Usagef("gyre plot signal needs COLUMN/ROW=DIR, got %q", arg)
		}
		list = append(list, plot.Signal{Column: column, Row: row, Path: dir})
	}
	if len(list) == 0 {
		return Usagef("gyre plot signal needs an analysis: COLUMN/ROW=DIR; see gyre plot signal --help")
	}
	f, sentences, err := plot.Signals(c.String("title"), list)
	if err != nil {
		return openingError(err)
	}
	if err := f.Save(c.String("out"), c.Int("dpi")); err != nil {
		return err
	}
	for _, line := range append(sentences, c.String("out")) {
		fmt.Fprintln(c.App.Writer, line)
	}
	return nil
}

func plotRun(c *cli.Context) error {
	run, steps, err := openPlotted(c)
	if err != nil {
		return err
	}
	if c.Bool("list-steps") {
		return listSteps(c, run)
	}
	if c.Bool("terminal") {
		return plot.Terminal(c.App.Writer, run)
	}
	dir := run.File("plots")
	if c.Bool("prefilter") {
		dir = run.File("plots", "prefilter")
	}
	return drawRun(c, run, cmp.Or(c.String("output-dir"), dir), steps)
}

func note(c *cli.Context, text string) {
	fmt.Fprintf(c.App.ErrWriter, "%s %s\n", paint(c.App.ErrWriter, yellow, "note:"), text)
}

func listSteps(c *cli.Context, run *rundir.Run) error {
	analysed := plot.AnalysedSteps(run, c.Bool("prefilter"))
	for _, step := range analysed {
		fmt.Fprintln(c.App.Writer, step)
	}
	if len(analysed) == 0 {
		note(c, "no step has a gradient analysis")
	}
	return run.Broken
}

// drawRun writes a run's figures to a folder. What a broken metrics file still holds is drawn before its error is
// returned.
func drawRun(c *cli.Context, run *rundir.Run, dir string, steps []int) error {
	files, notes, err := plot.Draw(run, steps, c.Bool("prefilter"))
	if err != nil {
		return err
	}
	for _, f := range files {
		if c.Context.Err() != nil {
			return context.Cause(c.Context)
		}
		path := filepath.Join(dir, f.Name)
		if err := f.Save(path, c.Int("dpi")); err != nil {
			return err
		}
		fmt.Fprintln(c.App.Writer, path)
	}
	for _, text := range notes {
		note(c, text)
	}
	return run.Broken
}

// openPlotted reads the run that is to be drawn, and says which of its steps.
func openPlotted(c *cli.Context) (run *rundir.Run, steps []int, err error) {
	name, steps, err := plotArguments(c.Args().Slice(), c.IntSlice("step"))
	if err != nil {
		return nil, nil, err
	}
	run, err = rundir.Read(name)
	return run, steps, openingError(err)
}

// plotArguments tells RUN from further step numbers: "--step 1 51 RUN" and "RUN --step 1 51" both arrive with 1 as the
// flag's value and the rest as arguments.
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
		return "", nil, Usagef("gyre plot needs one run directory or metrics.jsonl, got %d: %q; see gyre plot --help",
			len(names), names)
	}
	return names[0], steps, nil
}

func plotSteps(c *cli.Context) error {
	if c.NArg() > 0 {
		return plotHistory(c)
	}
	mode := strings.ToUpper(c.String("mode"))
	if mode != "GRPO" && mode != "PPO" {
		return Usagef("--mode is %q, expected grpo or ppo", c.String("mode"))
	}
	var dirs []plot.StepDir
	for _, step := range []int{0, 20, 40} {
		name := fmt.Sprintf("step%d-dir", step)
		if c.String(name) == "" {
			return Usagef("gyre plot steps needs --%s, or the history of a run; see gyre plot steps --help", name)
		}
		dirs = append(dirs, plot.StepDir{Step: step, Path: c.String(name)})
	}
	f, err := plot.ExportedSteps(mode+": gradient analysis over training", dirs)
	if err != nil {
		return err
	}
	if err := f.Save(c.String("out"), c.Int("dpi")); err != nil {
		return err
	}
	fmt.Fprintln(c.App.Writer, c.String("out"))
	return nil
}

var notInFolderNames = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// plotHistory draws the analysed steps of an exported history, as RAGEN's script does with a run on W&B.
func plotHistory(c *cli.Context) error {
	run, steps, err := openPlotted(c)
	if err != nil {
		return err
	}
	if c.Bool("list-steps") {
		return listSteps(c, run)
	}
	if len(steps) == 0 {
		if steps = plot.AnalysedSteps(run, false); len(steps) == 0 {
			return fmt.Errorf("%s: no step has a gradient analysis: expected metrics named grad_norm/bucket_N/…",
				c.Args().First())
		}
	}
	dir := c.String("output-dir")
	if dir == "" {
		dir = notInFolderNames.ReplaceAllString(run.Name, "_")
		if id := run.ID(); id != "" {
			dir += "_" + notInFolderNames.ReplaceAllString(id, "_")
		}
		dir = filepath.Join("gradient_analysis_outputs", dir)
	}
	return drawRun(c, run, dir, steps)
}
