package trainer

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/gradients"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/run/metrics"
)

// componentObserver measures the gradients of the reward's components.
type componentObserver struct {
	*session.Session
	dir    string // that files go into; "" writes none
	saves  bool   // the gradients, too: known to the ranks that write nothing
	looked bool   // at a step: what lacks in the first is warned of
}

// Due implements Observer: steps 1, 1 + every, 1 + 2·every, …
func (o *componentObserver) Due(step int) bool {
	c := o.Config.Components
	return c.Enabled && (step-1)%c.Every == 0
}

// Look implements Observer. A step that the filter left nothing of has nothing to measure.
func (o *componentObserver) Look(ctx context.Context, s *Step) error {
	if s.Chosen.Batch.Len() == 0 {
		return nil
	}
	report, err := o.measure(ctx, s.Number, &s.Chosen, s.Line)
	if report != nil {
		s.components = report
		o.Log.File(strings.TrimSpace(report.Console()))
	}
	return err
}

// componentWeights are what the configuration multiplies the components by.
func componentWeights(c *config.Config) map[string]float64 {
	if len(c.Components.Weights) > 0 {
		return c.Components.Weights
	}
	out := map[string]float64{}
	for _, r := range c.Rewards {
		out[r.Name] = r.Weight
	}
	return out
}

// measure takes the gradients of the components of a prepared batch's reward, at the present weights, and leaves
// everything as it was. Its report is nil where the reward has none. Files count the updates before the step: the first
// step's have the number 0.
func (o *componentObserver) measure(ctx context.Context, step int, s *Prepared, line metrics.Line) (
	report *gradients.ComponentReport, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("gradients of the reward components: %w", err)
		}
	}()
	c, episodes := o.Config.Components, rewarded(s, o.Config)
	c.Names = experiment.RewardComponents(o.Config)
	o.noteMissing(step, c.Names, gradients.Occurring(episodes))
	advantages := gradients.Estimate(episodes, c, componentWeights(o.Config), o.Config.Algorithm)
	if len(advantages.Names) == 0 {
		return nil, nil
	}
	subject := subjectOf(o.Session, s) // as the policy that sampled it: no ratio differs from 1, nothing is clipped
	if subject.Batch.Old, err = presentLogprobs(ctx, o.Session, s.Batch, s.onPolicy); err != nil {
		return nil, err
	}
	options := gradients.ComponentOptions{Permutations: c.Permutations, Confidence: gradients.Confidence,
		Seed: o.Config.Run.Seed, Step: uint64(step)}
	if o.saves && c.Enabled && c.Save != "none" {
		options.Keep = func(taken gradients.Taken) error {
			taken.Names = taken.Names[:len(advantages.Names)]
			return taken.Save(ctx, o.file("gradients_step_%d.npz", step), o.World, c.Save == "projection")
		}
	}
	report, err = gradients.MeasureComponents(ctx, subject, session.GroupIDs(s.Episodes), advantages, options)
	if err != nil {
		return nil, err
	}
	o.looked = true
	line.Add(report.Metrics())
	if o.dir == "" {
		return report, nil
	}
	return report, atomicfile.Write(o.file("cosines_step_%d.csv", step), func(w io.Writer) error {
		return report.WriteCSV(w, c.Save != "none")
	})
}

// file is the path of a step's file; "" where none is written.
func (o *componentObserver) file(name string, step int) string {
	if o.dir == "" {
		return ""
	}
	return filepath.Join(o.dir, fmt.Sprintf(name, step-1))
}

// noteMissing warns of what the configuration names and the first batch lacks. Such a component measures nothing
// until an episode has it.
func (o *componentObserver) noteMissing(step int, names, occurring []string) {
	if len(occurring) == 0 {
		o.Log.Warnf("step %d: no episode has a reward component, so none is measured: the rewards of [[rewards]], "+
			`an environment that names components, or a file with "components" make some`, step)
		return
	}
	for _, name := range names {
		if !o.looked && !slices.Contains(occurring, name) {
			o.Log.Warnf("step %d: components.names lists %q, but the episodes have %s: it is measured at steps whose "+
				"episodes have it", step, name, strings.Join(occurring, ", "))
		}
	}
}

// rewarded are the episodes of a batch with the rewards of their components, placed as in the update.
func rewarded(s *Prepared, c *config.Config) []gradients.Rewarded {
	out := make([]gradients.Rewarded, len(s.Episodes))
	for i, t := range trajectories(s, c) {
		out[i] = gradients.Rewarded{Trajectory: t, Components: map[string][]float64{}}
		for name, rewards := range s.Episodes[i].Components {
			own := *s.Episodes[i]
			own.Score, own.Rewards = episode.Sum(rewards), rewards
			out[i].Components[name] = own.TokenRewards(creditsTurns(c))
		}
	}
	return out
}
