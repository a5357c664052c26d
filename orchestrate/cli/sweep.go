package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gyre/internal/exitcode"
	"gyre/internal/table"
	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/source"
	"gyre/orchestrate/run/interrupt"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/study/sweep"
)

func sweepCommand() *cli.Command {
	return &cli.Command{
		Name: "sweep", Usage: "run a study: conditions times seeds, and what differs",
		ArgsUsage: "STUDY [key=value ...]",
		Flags: append(studyFlags(),
			atLeast(1, "stage", 0, "run this stage only"),
			toggle("shared-base", "one process and one base model for all runs"),
			&cli.StringSliceFlag{Name: "start", Usage: "`KEY=VALUE` to start --stage from (repeatable)"}),
		Action: func(c *cli.Context) error { return study(c, sweep.Sweeps) },
	}
}

func searchCommand() *cli.Command {
	return &cli.Command{
		Name: "search", Usage: "search the settings of a study by successive halving",
		ArgsUsage: "STUDY [key=value ...]",
		Flags: append(studyFlags(),
			atLeast(1, "configurations", 0, "settings to draw; all by default"),
			atLeast(1, "reduction", 0, "one in so many goes on (3)"),
			atLeast(1, "min-steps", 0, "steps to the first rung, at least")),
		Action: func(c *cli.Context) error { return study(c, sweep.Searches) },
	}
}

// studyFlags are those of sweeps and searches.
func studyFlags() []cli.Flag {
	return []cli.Flag{
		atLeast(1, "slots", 0, "runs at a time"),
		atLeast(1, "seeds", 0, "runs per condition"),
		text("values", "comma list: values of the first axis"),
		text("labels", "comma list: their names, in folders and tables"),
		text("gpus", "comma list of devices, dealt out to the slots"),
		atLeast(1, "gpus-per-run", 0, "devices of each run"),
		atLeast(1, "threads", 0, "CPU threads of each run"),
		text("name", "the study's name and folder"),
		text("base", "`FILE` of the experiment, in place of the study's"),
		text("objective", "metric that says what is best, by its last value"),
		text("logs", "folder for what the runs say"),
		text("summary", "file for the summary as text"),
		toggle("dry-run", "list the runs, their time and memory, stop"),
		planDeviceFlag(),
		toggle("resume", "go on with what is missing (the default)"),
	}
}

// study runs a sweep or a search and prints its summary; with --dry-run it says what that would take.
func study(c *cli.Context, kind sweep.Kind) error {
	s, err := loadStudy(c)
	if err != nil {
		return err
	}
	p, err := sweep.NewPreview(s, kind)
	if err != nil {
		return err
	}
	if c.Bool("dry-run") {
		return planStudy(c, s, p)
	}
	if err := startable(c, s, p.Runs); err != nil {
		return err
	}
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	shared := session.NewSharedBase()
	defer shared.Close()
	summary, err := sweep.Execute(c.Context, s, kind, sweep.Options{Command: binary,
		Console: metrics.NewConsole(c.App.ErrWriter), Here: trainOn(shared)})
	if err != nil && !errors.As(err, new(*interrupt.Error)) {
		return err
	}
	if _, printed := fmt.Fprint(c.App.Writer, summary.Text(table.Room(c.App.Writer))); printed != nil {
		return printed
	}
	fmt.Fprintf(c.App.ErrWriter, "files: %s\n", strings.Join(summary.Files, " "))
	if summary.Failed > 0 && err == nil {
		return fmt.Errorf("%d of %d runs failed; see %s", summary.Failed, summary.Runs,
			strings.Join(summary.Files[:min(3, len(summary.Files))], ", "))
	}
	return err
}

// trainOn trains a run of a study in this process, whose runs share a base.
func trainOn(shared *session.SharedBase) func(context.Context, io.Writer, string, []string, int) (int, error) {
	return func(ctx context.Context, log io.Writer, base string, overrides []string, until int) (int, error) {
		tenant, err := shared.Join(ctx)
		if err != nil {
			return 0, err
		}
		defer tenant.Leave()
		cfg, err := config.Load(base, overrides, experiment.CheckEnvironments(ctx))
		if err != nil {
			fmt.Fprintf(log, "gyre: %v\n", err)
			return exitcode.Usage, nil
		}
		return trainHere(ctx, cfg, session.Options{Resume: true, Until: until, Tenant: tenant,
			Console: metrics.NewConsole(log)}), nil
	}
}

// startable prints the warnings about the runs. It is an error when not one of them can be opened, as when the model is
// not there yet: that costs no process a run and leaves nothing behind. Some that cannot start are a result of the
// study.
func startable(c *cli.Context, s *sweep.Study, runs []*sweep.Run) error {
	var first error
	opens := false
	warned := map[string]bool{}
	for _, r := range runs {
		cfg, err := config.Load(s.BasePath(), r.Overrides, experiment.CheckEnvironments(c.Context))
		if err == nil {
			warnOnce(c, cfg, warned)
		}
		if err == nil && !opens && !r.Over() {
			_, err = experiment.Open(cfg, source.Parts(true))
		}
		opens = opens || err == nil || r.Over()
		if err != nil && first == nil {
			first = fmt.Errorf("no run of the study can start; the first, %s: %w", r.Condition, err)
		}
	}
	if opens {
		return nil
	}
	return first
}

// studyKeys are the flags that set a key of the study's file.
var studyKeys = map[string]string{
	"slots": "study.slots", "seeds": "study.seeds", "gpus-per-run": "study.devices_per_run",
	"threads": "study.threads_per_run", "shared-base": "study.shared_base", "name": "study.name",
	"objective": "study.objective", "logs": "study.logs", "summary": "study.summary_log",
	"configurations": "search.configurations", "reduction": "search.reduction", "min-steps": "search.min_steps",
}

// loadStudy reads the study's file and what the command line changes about it.
func loadStudy(c *cli.Context) (*sweep.Study, error) {
	if strings.Contains(c.Args().First(), "=") {
		return nil, Usagef("%s needs %s, got %q first", c.Command.HelpName, c.Command.ArgsUsage, c.Args().First())
	}
	var changes, overrides []string
	for flag, key := range studyKeys {
		if c.IsSet(flag) {
			changes = append(changes, fmt.Sprintf("%s=%v", key, c.Value(flag)))
		}
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
	s.Override, s.OnlyStage, s.Start = overrides, c.Int("stage"), c.StringSlice("start")
	if s.OnlyStage > s.Stages() {
		return nil, Usagef("--stage is %d, and the study has %d", s.OnlyStage, s.Stages())
	}
	return s, nil
}
