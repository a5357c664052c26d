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

	"gyre/internal/table"
	"gyre/orchestrate/run/rundir"
	"gyre/orchestrate/study/evaluation"
	"gyre/orchestrate/study/plot"
	"gyre/orchestrate/study/report"
)

func plotCommand() *cli.Command {
	return &cli.Command{
		Name: "plot", Usage: "draw the training curves and gradient analyses of a run", ArgsUsage: "RUN [STEP ...]",
		Flags: []cli.Flag{
			stepFlag(),
			toggle("list-steps", "print the steps whose gradients were analysed"),
			toggle("terminal", "print validation success and utilization instead"),
			text("output-dir", "write to `DIR` instead of RUN/plots"),
			dpiFlag(),
			toggle("prefilter", "the unfiltered episodes, to RUN/plots/prefilter"),
		},
		Action: plotRun,
		Subcommands: []*cli.Command{{
			Name: "steps", Usage: "draw exported analyses: of a W&B run, or of three steps",
			ArgsUsage: "[HISTORY] [STEP ...]",
			Flags: []cli.Flag{
				toggle("list-steps", "print the analysed steps of HISTORY"),
				stepFlag(),
				text("output-dir", "write the files of HISTORY to `DIR`"),
				withDefault("mode", "grpo", "grpo or ppo: the figure's title"),
				text("step0-dir", "`DIR` of the first step"),
				text("step20-dir", "`DIR` of the second step"),
				text("step40-dir", "`DIR` of the third step"),
				withDefault("out", "icml_step0_20_40_grid.png", "PNG `FILE` to write"),
				dpiFlag(),
			},
			Action: plotSteps,
		}, {
			Name: "signal", Usage: "compare analyses, and say which gradients are not zero",
			ArgsUsage: "COLUMN/ROW=DIR ...",
			Flags: []cli.Flag{
				withDefault("title", "Where the gradient comes from", "the figure's `TITLE`"),
				withDefault("out", "signal.png", "PNG `FILE` to write"),
				dpiFlag(),
			},
			Action: plotSignal,
		}, {
			Name: "budget", Usage: "draw what an adaptive budget expected, and what came", ArgsUsage: "RUN",
			Flags:  []cli.Flag{text("out", "PNG `FILE`; RUN/plots/budget.png if left out"), dpiFlag()},
			Action: plotBudget,
		}},
	}
}

// stepFlag's further values arrive as arguments: --step 1 51.
func stepFlag() cli.Flag {
	return &cli.IntSliceFlag{Name: "step", Usage: "draw step `N` only; several may be given"}
}

func plotBudget(c *cli.Context) error {
	if c.NArg() != 1 {
		return Usagef("gyre plot budget needs one RUN, got %d", c.NArg())
	}
	run, err := rundir.Read(c.Args().First())
	if err != nil {
		return openingError(err)
	}
	f, err := plot.Budget(run)
	if err != nil {
		return err
	}
	path := cmp.Or(c.String("out"), run.File("plots", f.Name))
	if err := (plot.File{Name: f.Name, Write: f.PNG}).Save(path, c.Int("dpi")); err != nil {
		return err
	}
	fmt.Fprintln(c.App.Writer, path)
	return run.Broken
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
	f, results, err := plot.Signals(c.String("title"), list)
	if err != nil {
		return openingError(err)
	}
	if err := f.Save(c.String("out"), c.Int("dpi")); err != nil {
		return err
	}
	if err := results.Write(c.App.Writer); err != nil {
		return err
	}
	return printf(c, "%s\n", c.String("out"))
}

// plotRun draws a run, or only the analysed steps of an exported history, as RAGEN's script does with a run on W&B.
func plotRun(c *cli.Context) error {
	name, steps, err := plotArguments(c.Args().Slice(), c.IntSlice("step"))
	if err != nil {
		return err
	}
	run, err := rundir.Read(name)
	if err != nil {
		return openingError(err)
	}
	analysed := plot.AnalysedSteps(run, c.Bool("prefilter"))
	switch {
	case c.Bool("list-steps"):
		for _, step := range analysed {
			fmt.Fprintln(c.App.Writer, step)
		}
		if len(analysed) == 0 {
			say(c, "note:", "no step has a gradient analysis")
		}
		return run.Broken
	case c.Bool("terminal"):
		said, err := plot.Terminal(run, table.Width(c.App.Writer))
		_, wrote := fmt.Fprint(c.App.Writer, said)
		return cmp.Or(err, wrote)
	}
	dir := run.File("plots")
	if c.Bool("prefilter") {
		dir = run.File("plots", "prefilter")
	}
	if c.Command.Name == "steps" {
		if len(steps) == 0 && len(analysed) == 0 {
			return fmt.Errorf("%s: no step has a gradient analysis: expected metrics named grad_norm/bucket_N/…", name)
		}
		if len(steps) == 0 {
			steps = analysed
		}
		folder := strings.TrimSuffix(run.Name+"_"+run.ID(), "_")
		dir = filepath.Join("gradient_analysis_outputs", notInFolderNames.ReplaceAllString(folder, "_"))
	}
	return drawRun(c, run, cmp.Or(c.String("output-dir"), dir), steps)
}

var notInFolderNames = regexp.MustCompile(`[^A-Za-z0-9_-]`)

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
		say(c, "note:", text)
	}
	return run.Broken
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
		return plotRun(c)
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
	return printf(c, "%s\n", c.String("out"))
}

func reportCommand() *cli.Command {
	return &cli.Command{
		Name: "report", Usage: "write one self-contained HTML page about one or several runs", ArgsUsage: "RUN ...",
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
			differences, note, err := evaluation.OfRuns(runs)
			if err != nil {
				return err
			}
			if err := report.Write(c.Context, runs, report.Paired{Table: differences, Note: note}, path); err != nil {
				return err
			}
			return printf(c, "%s\n", path)
		},
	}
}
