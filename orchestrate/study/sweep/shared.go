package sweep

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"gyre/internal/settings"
	"gyre/orchestrate/config"
	"gyre/orchestrate/run/interrupt"
)

// own are the tables and keys in which runs on one base may differ: adapters, losses and what they are made of,
// rewards, seeds, and names.
var own = []string{"lora", "actor", "critic", "importance", "algorithm", "filter", "rewards", "components", "run.seed",
	"run.env_seed", "run.name", "run.output"}

// checkShared refuses runs that cannot share a process and a base, by the key in which one differs from the first.
func (s *Study) checkShared(runs []*Run) error {
	if !s.SharedBase {
		return nil
	}
	var first []byte
	for _, r := range runs {
		c, err := config.Load(s.BasePath(), r.Overrides)
		if err != nil {
			continue // it fails alone, and says why
		}
		if !c.LoRA.Wanted() {
			return fmt.Errorf("%w: %s: condition %s: lora.rank is 0: runs share a base (--shared-base) that none of "+
				"them changes, so each needs adapters", settings.ErrInvalid, s.file, r.Condition)
		}
		resolved, err := config.Resolved(c)
		if err != nil {
			return err
		}
		if first == nil {
			first = resolved
			continue
		}
		changes, err := config.Compare(first, resolved)
		if err != nil {
			return err
		}
		for _, change := range changes {
			if !slices.ContainsFunc(own, func(key string) bool {
				return change.Key == key || strings.HasPrefix(change.Key, key+".")
			}) {
				return fmt.Errorf("%w: %s: condition %s differs from %s in %s (%s and %s): runs that share a base "+
					"(--shared-base) may differ in %s only", settings.ErrInvalid, s.file, r.Condition,
					runs[0].Condition,
					change.Key, change.To, change.From, strings.Join(own, ", "))
			}
		}
	}
	return nil
}

// most is the number of runs that a stage has at most.
func (s *Study) most() (n int) {
	for stage := 1; stage <= s.Stages(); stage++ {
		n = max(n, len(s.conditions(stage, nil))*s.Seeds)
	}
	return max(n, 1)
}

// here trains a run in this process, in turns with others on the same base; what it gives is what process gives.
func (x *execution) here(ctx context.Context, r *Run, _ slot) (code int, err error) {
	log, err := r.openLog()
	if err != nil {
		return 0, err
	}
	defer log.Close()
	ctx, stop := interrupt.Part(ctx, log)
	defer stop()
	fmt.Fprintf(log, "$ gyre train %s %s\n", x.study.BasePath(), strings.Join(r.Overrides, " "))
	return x.options.Here(ctx, log, x.study.BasePath(), r.Overrides, r.Target)
}
