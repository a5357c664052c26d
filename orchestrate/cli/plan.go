package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"gyre/internal/table"
	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/source"
	"gyre/orchestrate/study/scale"
	"gyre/orchestrate/study/sweep"
)

// planned is what a run would take of a machine, on GPUs where it has some or the run asks for them. It needs no more
// of a model than its config.json.
func planned(cfg *config.Config, ranks int, m scale.Machine, onGPUs bool) (*experiment.Experiment, scale.Plan, error) {
	if onGPUs || m.Bytes < 4 {
		cfg.Model.Device, cfg.Model.DType = "cuda", "auto"
	}
	opened, err := experiment.Open(cfg, source.Parts(false))
	if err != nil {
		return nil, scale.Plan{}, err
	}
	opened.Parts.Play = true
	plan, err := scale.New(opened, cfg, ranks, m)
	return opened, plan, err
}

// planScale prints what the run would take on --ranks of a --device.
func planScale(c *cli.Context, cfg *config.Config) error {
	n := max(c.Int("ranks"), 1)
	machine, err := scale.Find(c.String("device"), n, experiment.Memory())
	if err != nil {
		return Usagef("%w", err)
	}
	opened, plan, err := planned(cfg, n, machine, false)
	if opened == nil {
		return openingError(err)
	} else if err != nil {
		return Usagef("%w", err)
	}
	return printf(c, "policy: %s, %.2f billion parameters\n%s", opened.Policy.Dir,
		float64(experiment.Parameters(opened.Policy.Shape))/1e9, plan)
}

// unknownTime is that of runs of which nothing has logged steps yet.
const unknownTime time.Duration = -1

// listRuns prints runs with what they will take, and adds up the time of those that are missing.
func listRuns(c *cli.Context, s *sweep.Study, p sweep.Preview) (total time.Duration, err error) {
	t := table.New("condition", "seed", "status", "steps", "time", "memory", "verdict", "directory")
	reasons := map[string][]string{} // conditions by why their memory is unknown, or what would make them fit
	warned := map[string]bool{}
	broken, ranks := 0, max(s.DevicesPerRun, 1)
	machine := scale.Here(ranks*p.Slots, experiment.Memory())
	if name := c.String("device"); name != "" {
		if machine, err = scale.Find(name, ranks*p.Slots, experiment.Memory()); err != nil {
			return 0, Usagef("%w", err)
		}
	}
	for _, r := range p.Runs {
		cfg, err := config.Load(s.BasePath(), r.Overrides, experiment.CheckEnvironments(c.Context))
		if err != nil {
			broken++
			fmt.Fprintf(c.App.ErrWriter, "%s, seed %d cannot start: %v\n", r.Condition, r.Seed, err)
			t.Add(r.Condition, r.Seed, string(r.Status), nil, nil, nil, "cannot start", r.Dir)
			continue
		}
		warnOnce(c, cfg, warned)
		memory, verdict, why := judge(cfg, ranks, machine, len(s.Devices) > 0)
		if why != "" && !slices.Contains(reasons[why], r.Condition) {
			reasons[why] = append(reasons[why], r.Condition)
		}
		var expected any
		if p.SecondsPerStep > 0 {
			whole := time.Duration(p.SecondsPerStep * float64(cfg.Run.Steps) * float64(time.Second)).Round(time.Second)
			if expected = whole.String(); !r.Over() && total != unknownTime {
				total += whole
			}
		} else {
			total = unknownTime
		}
		t.Add(r.Condition, r.Seed, string(r.Status), cfg.Run.Steps, expected, memory, verdict, r.Dir)
	}
	if err := t.Write(c.App.Writer); err != nil {
		return 0, err
	}
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Fprintf(c.App.ErrWriter, "%s: %s\n", strings.Join(slices.Sorted(slices.Values(reasons[why])), ", "), why)
	}
	if broken > 0 {
		return 0, Usagef("%d of %d runs cannot start", broken, len(p.Runs))
	}
	return total, nil
}

// planStudy prints a study's runs, the rungs of a search, and how long the missing runs will take together.
func planStudy(c *cli.Context, s *sweep.Study, p sweep.Preview) error {
	total, err := listRuns(c, s, p)
	if err != nil {
		return err
	}
	if len(p.Rungs) > 0 {
		t := table.New("rung", "at step", "configurations")
		for i, r := range p.Rungs {
			t.Add(i+1, r.Steps, r.Configurations)
		}
		taken, all := sweep.StepsOf(p.Rungs), p.Rungs[len(p.Rungs)-1].Steps*p.Rungs[0].Configurations
		if err := t.Write(c.App.ErrWriter); err != nil {
			return err
		}
		fmt.Fprintf(c.App.ErrWriter, "about %d training steps per seed in place of %d\n", taken, all)
		if total != unknownTime {
			total = total * time.Duration(taken) / time.Duration(all)
		}
	}
	when := "about " + (total / time.Duration(p.Slots)).Round(time.Second).String()
	if total == unknownTime {
		when = "their time is known once a run of the study, or of its base, has logged steps"
	}
	fmt.Fprintf(c.App.ErrWriter, "%d runs on %d slots: %s\n", len(p.Runs), p.Slots, when)
	if stages := s.Stages(); stages > 1 && s.OnlyStage == 0 && len(p.Rungs) == 0 {
		fmt.Fprintf(c.App.ErrWriter, "these are the runs of the first of %d stages: a stage starts from the best "+
			"condition of the one before\n", stages)
	}
	return nil
}

// warnOnce prints the warnings about a run's configuration that no run before it had.
func warnOnce(c *cli.Context, cfg *config.Config, warned map[string]bool) {
	for _, w := range cfg.Warnings() {
		if !warned[w] {
			warn(c, w)
		}
		warned[w] = true
	}
}

// judge predicts what each rank of a run needs and whether the machine has it; why says why that is unknown, or what
// would make it fit.
func judge(cfg *config.Config, ranks int, machine scale.Machine, onGPUs bool) (memory, verdict, why string) {
	opened, plan, err := planned(cfg, ranks, machine, onGPUs)
	if opened == nil {
		reason, _, _ := strings.Cut(err.Error(), "\n")
		return "unknown", "unknown", "memory is unknown: " + reason
	} else if err != nil {
		return "unknown", "cannot start", err.Error()
	}
	memory = fmt.Sprintf("%.1f GiB", gibibytes(plan.Memory.Peak()))
	if ranks > 1 {
		memory = fmt.Sprintf("%d x %s", ranks, memory)
	}
	switch {
	case plan.Fits && plan.Auto:
		return memory, "fits with fsdp.shard=" + plan.Shard, ""
	case plan.Fits:
		return memory, "fits", ""
	case len(plan.Advice) == 0:
		return memory, "does not fit", fmt.Sprintf("a rank has %.1f GiB, and no single setting makes it fit",
			gibibytes(machine.Memory))
	}
	return memory, "does not fit", "would fit with " + strings.Join(plan.Advice, "; or with ")
}
