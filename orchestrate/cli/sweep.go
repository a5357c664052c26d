package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/interrupt"
	"gyre/orchestrate/metrics"
	"gyre/orchestrate/sweep"
	"gyre/orchestrate/trainer"
)

func sweepCommand() *cli.Command {
	return &cli.Command{
		Name:      "sweep",
		Usage:     "run a study: conditions times seeds, and what differs",
		ArgsUsage: "STUDY [key=value ...]",
		Description: `STUDY is a TOML file that names a base configuration and what to vary.
Everything goes into studies/NAME: runs, logs, state.json, summary and
figures. Started again, a study goes on with what is missing. Overrides
apply to every run.

   gyre sweep configs/studies/top_p_sweep.toml --dry-run
   gyre sweep configs/studies/top_p_sweep.toml --slots 2 run.steps=50
   gyre sweep configs/studies/kl_sweep.toml --values 0,0.01 --gpus 0,1

Exit code 1 means that a run failed; its reason is in the summary.`,
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "slots", Usage: "runs at a time"},
			&cli.IntFlag{Name: "seeds", Usage: "runs per condition"},
			&cli.StringFlag{Name: "values", Usage: "comma list: values of the first axis"},
			&cli.StringFlag{Name: "labels", Usage: "comma list: their names, in folders and tables"},
			&cli.StringFlag{Name: "gpus", Usage: "comma list of devices, dealt out to the slots"},
			&cli.IntFlag{Name: "gpus-per-run", Usage: "devices of each run"},
			&cli.IntFlag{Name: "threads", Usage: "CPU threads of each run"},
			&cli.StringFlag{Name: "name", Usage: "the study's name and folder"},
			&cli.StringFlag{Name: "logs", Usage: "folder for what the runs say"},
			&cli.StringFlag{Name: "summary", Usage: "file for the summary as text"},
			&cli.BoolFlag{Name: "dry-run", Usage: "list the runs, their time and memory, stop"},
			&cli.BoolFlag{Name: "resume", Usage: "go on with what is missing (the default)"},
		},
		Action: func(c *cli.Context) error {
			s, err := loadStudy(c)
			if err != nil {
				return err
			}
			if c.Bool("dry-run") {
				return drySweep(c, s)
			}
			binary, err := os.Executable()
			if err != nil {
				return err
			}
			summary, err := sweep.Execute(c.Context, s, sweep.Options{
				Command: binary, Console: metrics.NewConsole(c.App.ErrWriter),
				Ranks: slices.ContainsFunc(trainCommand().Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), "ranks") }),
			})
			var interrupted *interrupt.Error
			if err != nil && !errors.As(err, &interrupted) {
				return err
			}
			for _, path := range summary.Files {
				fmt.Fprintln(c.App.Writer, path)
			}
			if err != nil {
				return err
			}
			if n := summary.Failed(); n > 0 {
				return fmt.Errorf("%d of %d runs failed; see %s", n, len(summary.Rows), strings.Join(summary.Files[:min(3, len(summary.Files))], ", "))
			}
			return nil
		},
	}
}

// loadStudy reads the study's file and what the command line changes about it.
func loadStudy(c *cli.Context) (*sweep.Study, error) {
	if c.NArg() == 0 || strings.Contains(c.Args().First(), "=") {
		return nil, Usagef("usage: gyre sweep STUDY [key=value ...]; see gyre sweep --help")
	}
	s, err := sweep.Load(c.Args().First())
	if err != nil {
		return nil, err
	}
	for _, word := range c.Args().Tail() {
		if !strings.Contains(word, "=") {
			return nil, Usagef("expected key=value after the study, got %q", word)
		}
		s.Set = append(s.Set, word)
	}
	for name, value := range map[string]*int{"slots": &s.Slots, "seeds": &s.Seeds, "gpus-per-run": &s.DevicesPerRun, "threads": &s.ThreadsPerRun} {
		if !c.IsSet(name) {
			continue
		}
		if *value = c.Int(name); *value < 1 {
			return nil, Usagef("--%s is %d, expected at least 1", name, *value)
		}
	}
	s.Name, s.Logs, s.SummaryLog = cmp.Or(c.String("name"), s.Name), cmp.Or(c.String("logs"), s.Logs), cmp.Or(c.String("summary"), s.SummaryLog)
	if list := c.String("gpus"); list != "" {
		s.Devices = strings.Split(list, ",")
	}
	if list := c.String("values"); list != "" {
		var labels []string
		if names := c.String("labels"); names != "" {
			labels = strings.Split(names, ",")
		}
		if err := s.SetValues(strings.Split(list, ","), labels); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// drySweep lists a study's runs with what they will take.
func drySweep(c *cli.Context, s *sweep.Study) error {
	runs, slots, err := sweep.Preview(s)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "condition\tseed\tstatus\tsteps\ttime\tmemory\tdirectory\n")
	unknown := map[string][]string{} // conditions by why their memory is unknown
	total, known, broken := time.Duration(0), true, 0
	for _, r := range runs {
		steps, expected, memory := "-", "unknown", ""
		cfg, err := config.Load(s.BasePath(), r.Overrides, experiment.CheckEnvironments(c.Context))
		if err != nil {
			broken++
			fmt.Fprintf(c.App.ErrWriter, "%s, seed %d cannot start: %v\n", r.Condition, r.Seed, err)
			memory = "cannot start"
		} else {
			steps = fmt.Sprint(cfg.Run.Steps)
			if memory, err = memoryOf(cfg); err != nil {
				reason, _, _ := strings.Cut(err.Error(), "\n")
				unknown[reason] = append(unknown[reason], r.Condition)
			}
			if r.SecondsPerStep > 0 {
				whole := time.Duration(r.SecondsPerStep * float64(cfg.Run.Steps) * float64(time.Second)).Round(time.Second)
				expected = whole.String()
				if !r.Over {
					total += whole
				}
			} else {
				known = false
			}
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", r.Condition, r.Seed, r.Status, steps, expected, memory, r.Dir)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for reason, conditions := range unknown {
		slices.Sort(conditions)
		fmt.Fprintf(c.App.ErrWriter, "memory of %s is unknown: %s\n", strings.Join(slices.Compact(conditions), ", "), reason)
	}
	if known {
		fmt.Fprintf(c.App.ErrWriter, "%d runs on %d slots, about %s\n", len(runs), slots, (total / time.Duration(slots)).Round(time.Second))
	} else {
		fmt.Fprintf(c.App.ErrWriter, "%d runs on %d slots; their time is known once a run of the study, or of its base, has logged steps\n", len(runs), slots)
	}
	if stages := s.Stages(); stages > 1 {
		fmt.Fprintf(c.App.ErrWriter, "these are the runs of the first of %d stages: a stage starts from the best condition of the one before\n", stages)
	}
	if broken > 0 {
		return &ExitError{Code: exitUsage, Err: fmt.Errorf("%d of %d runs cannot start", broken, len(runs))}
	}
	return nil
}

// memoryOf predicts what a run needs; where it cannot be opened, often because the model is not there yet, the error says why.
func memoryOf(cfg *config.Config) (string, error) {
	opened, err := experiment.Open(cfg, trainer.TrainingParts(false))
	if err != nil {
		return "unknown", err
	}
	return fmt.Sprintf("%.1f GiB", float64(opened.PlanMemory().Peak())/(1<<30)), nil
}
