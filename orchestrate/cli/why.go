package cli

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/urfave/cli/v2"

	"gyre/internal/atomicfile"
	"gyre/internal/nearest"
	"gyre/internal/table"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/trainer"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
	"gyre/orchestrate/study/causes"
	"gyre/orchestrate/study/whatif"
)

func whyCommand() *cli.Command {
	return &cli.Command{
		Name: "why", Usage: "what is wrong with a run, or what moved a step", ArgsUsage: "RUN",
		Flags: []cli.Flag{
			atLeast(1, "step", 0, "of the update"),
			withDefault("of", "score", "`QUANTITY`, as success or likelihood"),
			withDefault("by", "group", "`UNIT`: group, env or row"),
			text("on", "`FILE` of episodes; the last validation before"),
			atLeast(1, "top", 10, "units that are shown"),
			atLeast(1, "verify", 0, "run so many histories without a unit"),
			toggle("json", "print a JSON list"),
		},
		Action: why,
	}
}

// unitsBy are the ways of dividing a batch, by the keys of filter.without.
var unitsBy = map[string]func(*episode.Episode) string{
	"group": func(e *episode.Episode) string { return fmt.Sprint(e.Group) },
	"env":   func(e *episode.Episode) string { return e.Tag },
	"row":   func(e *episode.Episode) string { return cmp.Or(e.Label, fmt.Sprintf("seed %d", e.Seed)) },
}

func why(c *cli.Context) error {
	if c.NArg() != 1 {
		return Usagef("gyre why needs the directory of one run, got %d arguments", c.NArg())
	}
	if !c.IsSet("step") {
		return whySuspected(c)
	}
	by := c.String("by")
	units := unitsBy[by]
	if units == nil {
		return Usagef("--by %s%s: expected group, env or row", by, nearest.Hint(by, []string{"group", "env", "row"}))
	}
	run, err := rundir.Read(c.Args().First())
	if err != nil {
		return err
	}
	if run.Config == nil {
		return Usagef("%s has no config.toml that can be read: expected the directory of a training", run.Dir)
	}
	step := c.Int("step")
	q := trainer.Inquiry{Step: step, Of: c.String("of"), Units: units, Console: metrics.NewConsole(c.App.ErrWriter),
		Checkpoint: run.File(fmt.Sprintf("%s%d", rundir.CheckpointPrefix, step-1)),
		Batch:      run.File("rollouts", fmt.Sprintf("step_%d.jsonl", step)), On: c.String("on")}
	if !atomicfile.Exists(q.Checkpoint, "manifest.json") {
		return Usagef("%s is not there: why step %d did what it did is asked of the policy before it (run.save_every, "+
			"checkpoint.keep)", q.Checkpoint, step)
	}
	if q.On == "" {
		if q.On, err = lastValidation(run, step); err != nil {
			return err
		}
	}
	found, err := trainer.Explain(c.Context, run.Config, q)
	if err != nil {
		return err
	}
	slices.SortStableFunc(found.Units, func(a, b trainer.Moving) int {
		return cmp.Compare(math.Abs(b.Without), math.Abs(a.Without))
	})
	var came []float64
	if n := min(c.Int("verify"), len(found.Units)); n > 0 {
		if came, err = verify(c, run, q, by, found.Units[:n]); err != nil {
			return err
		}
	}
	return printWhy(c, run, q, by, found, came)
}

// whySuspected prints what the run's folder points at.
func whySuspected(c *cli.Context) error {
	for _, name := range []string{"of", "by", "on", "verify"} {
		if c.IsSet(name) {
			return Usagef("--%s is asked of one step: add --step N", name)
		}
	}
	run, err := rundir.Read(c.Args().First())
	if err != nil {
		return err
	}
	history, err := causes.Read(c.Context, run)
	if err != nil {
		return err
	}
	found, tested := causes.Rank(history)
	found = found[:min(len(found), c.Int("top"))]
	t := causes.Table(run, found)
	if c.Bool("json") {
		return table.WriteJSONList(c.App.Writer, t)
	}
	if err := printf(c, "%s\n", causes.Said(len(found), tested)); err != nil || len(found) == 0 {
		return err
	}
	if err := t.Write(c.App.Writer); err != nil {
		return err
	}
	if err := printf(c, "\n"); err != nil {
		return err
	}
	for _, s := range found {
		if err := printf(c, "  %s: %s\n", s.Cause, cmp.Or(s.Prove(run), "no history that this run has a checkpoint "+
			"and a setting for")); err != nil {
			return err
		}
	}
	return nil
}

// lastValidation is the file of the newest validation before a step.
func lastValidation(run *rundir.Run, step int) (path string, err error) {
	for _, f := range run.Rollouts() {
		if f.Kind == "validation" && f.Step < step {
			path = f.Path
		}
	}
	if path == "" {
		err = Usagef("%s has kept no validation before step %d: name the episodes that the question is about with --on FILE",
			run.Dir, step)
	}
	return path, err
}

// verify runs histories without units until the step, and gives what that changed of the quantity.
func verify(c *cli.Context, run *rundir.Run, q trainer.Inquiry, by string, units []trainer.Moving) ([]float64, error) {
	var histories []*whatif.History
	ask := func(without ...string) error {
		list, err := whatif.Plan(run, whatif.Question{From: q.Step - 1, Until: q.Step, Without: without})
		histories = append(histories, list...)
		return err
	}
	for _, u := range units {
		if err := ask(fmt.Sprintf("%s=%s@%d", by, u.Name, q.Step)); err != nil {
			return nil, err
		}
	}
	last := fmt.Sprintf("%s%d", rundir.CheckpointPrefix, q.Step)
	factual := run.File(last)
	if !atomicfile.Exists(factual, "manifest.json") {
		if err := ask(); err != nil {
			return nil, err
		}
		factual = histories[len(histories)-1].Dir() + "/" + last
	}
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if err := whatif.Execute(c.Context, histories, whatif.Options{Command: binary, Slots: 1, Console: q.Console}); err != nil {
		return nil, err
	}
	dirs := []string{factual}
	for _, h := range histories[:len(units)] {
		dirs = append(dirs, h.Dir()+"/"+last)
	}
	changes, err := trainer.Came(c.Context, run.Config, q, dirs...)
	if err != nil {
		return nil, err
	}
	for i := range changes[1:] {
		changes[i+1] -= changes[0]
	}
	return changes[1:], nil
}

func printWhy(c *cli.Context, run *rundir.Run, q trainer.Inquiry, by string, found *trainer.Influences,
	came []float64) error {
	t := table.New(by, "episodes", "score", "reward std", "without it", "came")
	for _, i := range []int{4, 5} {
		t.Columns[i].Format = "%+.3g"
	}
	t.Columns[5].Hidden = came == nil
	for i, u := range found.Units[:min(len(found.Units), max(c.Int("top"), len(came)))] {
		var realised any
		if i < len(came) {
			realised = came[i]
		}
		t.Add(u.Name, u.Episodes, u.Score, u.Spread, u.Without, realised)
	}
	if c.Bool("json") {
		return table.WriteJSONList(c.App.Writer, t)
	}
	err := printf(c, "step %d of %s should move %s by %+.3g, over the episodes of %s. Without one of its %d units it "+
		"would be other by:\n\n", q.Step, run.Name, q.Of, found.Update, q.On, len(found.Units))
	if err == nil {
		err = t.Write(c.App.Writer)
	}
	if err == nil && found.Mini > 1 {
		err = printf(c, "\nThe update has %d optimizer steps, whose gradients are taken at the weights before it: the first "+
			"order is less exact.\n", found.Mini)
	}
	if err == nil && came == nil && len(found.Units) > 0 {
		err = printf(c, "\nTo prove it: gyre what-if %s --from %d --without %s=%s@%d\n", run.Dir, q.Step-1, by,
			found.Units[0].Name, q.Step)
	}
	return err
}
