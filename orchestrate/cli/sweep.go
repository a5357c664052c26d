package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"gyre/internal/table"
	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/trainer"
	"gyre/orchestrate/run/interrupt"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/study/scale"
	"gyre/orchestrate/study/sweep"
)

func sweepCommand() *cli.Command {
	return &cli.Command{
		Name:      "sweep",
		Usage:     "run a study: conditions times seeds, and what differs",
		ArgsUsage: "STUDY [key=value ...]",
		Description: `STUDY is a TOML file that names a base configuration and what to vary.
Everything goes into studies/NAME: runs, logs, state.json, summary and
figures. Started again, a study goes on with what is missing. Overrides
apply to every run; study.KEY=…, axes.0.KEY=… and search.KEY=… change STUDY.

   gyre sweep configs/studies/top_p_sweep.toml --dry-run
   gyre sweep configs/studies/top_p_sweep.toml --slots 2 run.steps=50
   gyre sweep configs/studies/kl_sweep.toml --values 0,0.01 --gpus 0,1

Exit code 1 means that a run failed; its reason is in the summary.`,
		Flags: append(studyFlags(),
			&cli.IntFlag{Name: "stage", Usage: "run this stage only"},
			&cli.StringSliceFlag{Name: "start", Usage: "`KEY=VALUE` to start --stage from (repeatable)"}),
		Action: func(c *cli.Context) error {
			s, err := loadStudy(c)
			if err != nil {
				return err
			}
			s.OnlyStage, s.Start = c.Int("stage"), c.StringSlice("start")
			if c.IsSet("stage") && (s.OnlyStage < 1 || s.OnlyStage > s.Stages()) {
				return Usagef("--stage is %d, and the study has %d", s.OnlyStage, s.Stages())
			}
			for _, word := range s.Start {
				if !strings.Contains(word, "=") {
					return Usagef("--start %s: expected key=value", word)
				}
			}
			p, err := sweep.PreviewSweep(s)
			if err != nil {
				return err
			}
			if !c.Bool("dry-run") {
				return runStudy(c, s, p.Runs, sweep.Execute)
			}
			wall, known, err := listRuns(c, s, p)
			if err != nil {
				return err
			}
			sayTime(c, p, wall, known)
			if stages := s.Stages(); stages > 1 && s.OnlyStage == 0 {
				fmt.Fprintf(c.App.ErrWriter,
					"these are the runs of the first of %d stages: a stage starts from the best condition of the one "+
						"before\n", stages)
			}
			return nil
		},
	}
}

func searchCommand() *cli.Command {
	return &cli.Command{
		Name:      "search",
		Usage:     "search the settings of a study by successive halving",
		ArgsUsage: "STUDY [key=value ...]",
		Description: `Tries the settings of STUDY's axes, those of all stages together, and goes
on with the better ones: at every rung one in --reduction of those that have
come so far is continued to the next, from its checkpoint, as soon as it is
known to be among the best by validation success (asynchronous successive
halving). Files and slots are those of gyre sweep; in a sweep's folder it has
one of its own. Started again, it goes on where it was.

   gyre search configs/studies/kl_sweep.toml --dry-run
   gyre search configs/studies/hyperparam_search.toml --configurations 27

Exit code 1 means that a run failed; its reason is in the summary.`,
		Flags: append(studyFlags(),
			&cli.IntFlag{Name: "configurations", Usage: "settings to draw; all by default"},
			&cli.IntFlag{Name: "reduction", Usage: "one in so many goes on (3)"},
			&cli.IntFlag{Name: "min-steps", Usage: "steps to the first rung, at least"}),
		Action: func(c *cli.Context) error {
			s, err := loadStudy(c)
			if err != nil {
				return err
			}
			p, err := sweep.PreviewSearch(s)
			if err != nil {
				return err
			}
			if !c.Bool("dry-run") {
				return runStudy(c, s, p.Runs, sweep.Search)
			}
			whole, known, err := listRuns(c, s, p)
			if err != nil {
				return err
			}
			all, taken := 0, 0
			t := table.New("rung", "at step", "configurations")
			for i, r := range p.Rungs {
				t.Add(i+1, r.Steps, r.Configurations)
				taken += r.Steps * r.Configurations
				if i > 0 {
					taken -= p.Rungs[i-1].Steps * r.Configurations
				}
				all = r.Steps * p.Rungs[0].Configurations
			}
			if err := t.Write(c.App.ErrWriter); err != nil {
				return err
			}
			fmt.Fprintf(c.App.ErrWriter, "about %d training steps per seed in place of %d\n", taken, all)
			sayTime(c, p, whole*time.Duration(taken)/time.Duration(all), known)
			return nil
		},
	}
}

// studyFlags are those of sweeps and searches.
func studyFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "slots", Usage: "runs at a time"},
		&cli.IntFlag{Name: "seeds", Usage: "runs per condition"},
		&cli.StringFlag{Name: "values", Usage: "comma list: values of the first axis"},
		&cli.StringFlag{Name: "labels", Usage: "comma list: their names, in folders and tables"},
		&cli.StringFlag{Name: "gpus", Usage: "comma list of devices, dealt out to the slots"},
		&cli.IntFlag{Name: "gpus-per-run", Usage: "devices of each run"},
		&cli.IntFlag{Name: "threads", Usage: "CPU threads of each run"},
		&cli.StringFlag{Name: "name", Usage: "the study's name and folder"},
		&cli.StringFlag{Name: "base", Usage: "`FILE` of the experiment, in place of the study's"},
		&cli.StringFlag{Name: "objective", Usage: "metric that says what is best, by its last value"},
		&cli.StringFlag{Name: "logs", Usage: "folder for what the runs say"},
		&cli.StringFlag{Name: "summary", Usage: "file for the summary as text"},
		&cli.BoolFlag{Name: "dry-run", Usage: "list the runs, their time and memory, stop"},
		&cli.StringFlag{Name: "device", Usage: "with --dry-run: plan for `NAME` (h100, a100, here, ...)"},
		&cli.BoolFlag{Name: "resume", Usage: "go on with what is missing (the default)"},
	}
}

// runStudy runs a sweep or a search, of which runs are the first, and prints its summary.
func runStudy(c *cli.Context, s *sweep.Study, runs []sweep.Previewed,
	execute func(context.Context, *sweep.Study, sweep.Options) (sweep.Summary, error)) error {
	if err := startable(c, s, runs); err != nil {
		return err
	}
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	warned := map[string]bool{}
	for _, r := range runs {
		if cfg, err := config.Load(s.BasePath(), r.Overrides); err == nil {
			sayWarnings(c, cfg, warned)
		}
	}
	summary, err := execute(c.Context, s, sweep.Options{Command: binary, Console: metrics.NewConsole(c.App.ErrWriter)})
	var interrupted *interrupt.Error
	if err != nil && !errors.As(err, &interrupted) {
		return err
	}
	if printed := summary.Text(c.App.Writer, table.Width(c.App.Writer)); printed != nil {
		return printed
	}
	fmt.Fprintf(c.App.ErrWriter, "files: %s\n", strings.Join(summary.Files, " "))
	if err != nil {
		return err
	}
	if n := summary.Failed(); n > 0 {
		return fmt.Errorf("%d of %d runs failed; see %s", n, len(summary.Rows),
			strings.Join(summary.Files[:min(3, len(summary.Files))], ", "))
	}
	return nil
}

// startable is an error when not one of the runs can be opened, as when the model is not there yet: that costs no
// process a run and leaves nothing behind. Some that cannot start are a result of the study.
func startable(c *cli.Context, s *sweep.Study, runs []sweep.Previewed) error {
	var first error
	for _, r := range runs {
		cfg, err := config.Load(s.BasePath(), r.Overrides, experiment.CheckEnvironments(c.Context))
		if err == nil {
			_, err = experiment.Open(cfg, trainer.TrainingParts(false))
		}
		if err == nil || r.Over {
			return nil
		}
		if first == nil {
			first = fmt.Errorf("no run of the study can start; the first, %s: %w", r.Condition, err)
		}
	}
	return first
}

// studyKeys are the flags that set a key of the study's file.
var studyKeys = map[string]string{
	"slots": "study.slots", "seeds": "study.seeds", "gpus-per-run": "study.devices_per_run",
	"threads": "study.threads_per_run", "name": "study.name",
	"objective": "study.objective", "logs": "study.logs", "summary": "study.summary_log",
	"configurations": "search.configurations", "reduction": "search.reduction", "min-steps": "search.min_steps",
}

// loadStudy reads the study's file and what the command line changes about it.
func loadStudy(c *cli.Context) (*sweep.Study, error) {
	if c.NArg() == 0 || strings.Contains(c.Args().First(), "=") {
		return nil, Usagef("usage: gyre %s STUDY [key=value ...]; see gyre %[1]s --help", c.Command.Name)
	}
	var changes, overrides []string
	for flag, key := range studyKeys {
		if !c.IsSet(flag) {
			continue
		}
		if c.Value(flag) == 0 {
			return nil, Usagef("--%s is 0, expected at least 1", flag)
		}
		changes = append(changes, fmt.Sprintf("%s=%v", key, c.Value(flag)))
	}
	if base := c.String("base"); base != "" {
		path, err := filepath.Abs(base)
		if err != nil {
			return nil, err
		}
		changes = append(changes, "study.base="+path)
	}
	if list := c.String("gpus"); list != "" {
		changes = append(changes, fmt.Sprintf("study.devices=[\"%s\"]", strings.ReplaceAll(list, ",", `", "`)))
	}
	if list := c.String("values"); list != "" {
		var labels []string
		if names := c.String("labels"); names != "" {
			labels = strings.Split(names, ",")
		}
		changes = append(changes, sweep.Values(strings.Split(list, ","), labels)...)
	}
	for _, word := range c.Args().Tail() {
		switch {
		case !strings.Contains(word, "="):
			return nil, Usagef("expected key=value after the study, got %q", word)
		case sweep.Changes(word):
			changes = append(changes, word)
		default:
			overrides = append(overrides, word)
		}
	}
	s, err := sweep.Load(c.Args().First(), changes...)
	if err != nil {
		return nil, err
	}
	for _, word := range overrides {
		key, _, _ := strings.Cut(word, "=")
		if slices.ContainsFunc(s.Axes, func(a sweep.Axis) bool { return a.Key == key }) {
			return nil, Usagef("%s: the study varies %s, one value for every run would undo that", word, key)
		}
	}
	s.Override = overrides
	return s, nil
}

// listRuns prints runs with what they will take, and adds up the time of those that are missing; known is false where
// nothing tells it.
func listRuns(c *cli.Context, s *sweep.Study, p sweep.Preview) (total time.Duration, known bool, err error) {
	t := table.New("condition", "seed", "status", "steps", "time", "memory", "verdict", "directory")
	reasons := map[string][]string{} // conditions by why their memory is unknown, or what would make them fit
	known = true
	broken := 0
	warned := map[string]bool{}
	ranks := max(s.DevicesPerRun, 1)
	machine, err := scale.Find(cmp.Or(c.String("device"), "here"), ranks*p.Slots, experiment.Memory())
	if err != nil {
		return 0, false, Usagef("%w", err)
	}
	for _, r := range p.Runs {
		cfg, err := config.Load(s.BasePath(), r.Overrides, experiment.CheckEnvironments(c.Context))
		if err != nil {
			broken++
			fmt.Fprintf(c.App.ErrWriter, "%s, seed %d cannot start: %v\n", r.Condition, r.Seed, err)
			t.Add(r.Condition, r.Seed, string(r.Status), nil, nil, nil, "cannot start", r.Dir)
			continue
		}
		sayWarnings(c, cfg, warned)
		memory, verdict, why := judge(cfg, ranks, machine, len(s.Devices) > 0)
		if why != "" {
			reasons[why] = append(reasons[why], r.Condition)
		}
		var expected any
		if known = known && r.SecondsPerStep > 0; r.SecondsPerStep > 0 {
			whole := time.Duration(r.SecondsPerStep * float64(cfg.Run.Steps) * float64(time.Second)).Round(time.Second)
			if expected = whole.String(); !r.Over {
				total += whole
			}
		}
		t.Add(r.Condition, r.Seed, string(r.Status), cfg.Run.Steps, expected, memory, verdict, r.Dir)
	}
	if err := t.Write(c.App.Writer); err != nil {
		return 0, false, err
	}
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		conditions := reasons[why]
		conditions = slices.Compact(slices.Sorted(slices.Values(conditions)))
		fmt.Fprintf(c.App.ErrWriter, "%s: %s\n", strings.Join(conditions, ", "), why)
	}
	if broken > 0 {
		return 0, false, &ExitError{Code: exitUsage, Err: fmt.Errorf("%d of %d runs cannot start", broken, len(p.Runs))}
	}
	return total, known, nil
}

// sayWarnings prints the warnings about a run's configuration that no run before it had.
func sayWarnings(c *cli.Context, cfg *config.Config, warned map[string]bool) {
	for _, w := range cfg.Warnings() {
		if !warned[w] {
			fmt.Fprintf(c.App.ErrWriter, "%s %s\n", paint(c.App.ErrWriter, yellow, "warning:"), w)
		}
		warned[w] = true
	}
}

// judge predicts what each rank of a run needs and whether the machine has it; why says why that is unknown, or what
// would make it fit.
func judge(cfg *config.Config, ranks int, machine scale.Machine, onGPUs bool) (memory, verdict, why string) {
	if onGPUs || machine.Bytes < 4 {
		cfg.Model.Device, cfg.Model.DType = "cuda", "auto"
	}
	opened, err := experiment.Open(cfg, trainer.TrainingParts(true))
	if err != nil {
		reason, _, _ := strings.Cut(err.Error(), "\n")
		return "unknown", "unknown", "memory is unknown: " + reason
	}
	opened.Parts.Play = true
	plan, err := scale.New(opened, cfg, ranks, machine)
	if err != nil {
		return "unknown", "cannot start", err.Error()
	}
	memory = fmt.Sprintf("%.1f GiB", float64(plan.Memory.Peak())/(1<<30))
	if ranks > 1 {
		memory = fmt.Sprintf("%d x %s", ranks, memory)
	}
	if plan.Fits && plan.Auto {
		return memory, "fits with fsdp.shard=" + plan.Shard, ""
	}
	if plan.Fits {
		return memory, "fits", ""
	}
	if len(plan.Advice) == 0 {
		return memory, "does not fit", fmt.Sprintf("a rank has %.1f GiB, and no single setting makes it fit",
			float64(machine.Memory)/(1<<30))
	}
	return memory, "does not fit", "would fit with " + strings.Join(plan.Advice, "; or with ")
}

// sayTime prints how long the missing runs will take together.
func sayTime(c *cli.Context, p sweep.Preview, total time.Duration, known bool) {
	runs, slots := len(p.Runs), p.Slots
	if known {
		fmt.Fprintf(c.App.ErrWriter, "%d runs on %d slots, about %s\n", runs, slots,
			(total / time.Duration(slots)).Round(time.Second))
	} else {
		fmt.Fprintf(c.App.ErrWriter,
			"%d runs on %d slots; their time is known once a run of the study, or of its base, has logged steps\n",
			runs, slots)
	}
}
