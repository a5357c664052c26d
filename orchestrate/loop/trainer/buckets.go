package trainer

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/filter"
	"gyre/orchestrate/loop/gradients"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/source"
	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/run/metrics"
)

// bucketObserver measures the gradients of a batch by buckets of groups whose rewards vary alike: of the training
// batch, or of a batch that is played for it.
type bucketObserver struct {
	*session.Session
	rollouts    *session.Rollouts
	preparation *preparation
	exact       *bool  // the sampler's log-probs are proven to be the trainer's
	dir         string // the folder analysis of the run
}

// analysed is what an analysis has to say: what is logged, and tables for people.
type analysed struct {
	line metrics.Line
	text string
	// What was measured last, for those who read it on: with the pulls of its groups if that is asked for.
	report *gradients.Report
	chosen *Prepared
	batch  *train.Batch // weighed
	pulls  bool
}

func newAnalysed(c *config.Config) *analysed {
	out := &analysed{line: metrics.Line{}}
	out.line.Add(analysisMetrics{c.Analysis.Profile, !c.Separate()})
	return out
}

// analysisMetrics say how gradients were analysed.
type analysisMetrics struct {
	Profile  string `metric:"grad_analysis/profile" doc:"text: the procedure behind the numbers, exact or paper"`
	Training bool   `metric:"grad_analysis/uses_training_batch" doc:"1: the training batch; 0: a batch that was played for the analysis"`
}

// sourceMetrics describe a batch that is there for the analysis.
type sourceMetrics struct {
	Groups    int             `metric:"grad_analysis/source_env_groups,omitzero" doc:"groups that were played for the analysis"`
	GroupSize int             `metric:"grad_analysis/source_group_size,omitzero" doc:"episodes of each"`
	Source    int             `metric:"grad_analysis/source_batch_size,omitzero" doc:"episodes before the filter"`
	Kept      *int            `metric:"grad_analysis/adjusted_batch_size" doc:"episodes after it"`
	AllSource int             `metric:"grad_analysis_prefilter/source_batch_size,omitzero" doc:"episodes of the analysis before the filter"`
	AllKept   int             `metric:"grad_analysis_prefilter/adjusted_batch_size,omitzero" doc:"those of them in which the policy said something"`
	Filter    *filter.Metrics `metric:"grad_analysis" doc:"the filter's metrics on the batch"`
}

// bucketMetrics are the results of an analysis.
type bucketMetrics struct {
	Empty      *bool              `metric:"grad_analysis/empty_after_filter" doc:"1 if the filter kept nothing: there is nothing to analyse"`
	Kept       *gradients.Report  `metric:"grad_norm"`
	Unfiltered *gradients.Report  `metric:"grad_norm_prefilter" doc:"the same of the separate analysis batch before filtering (analysis.log_prefilter)"`
	Norms      map[string]float64 `metric:"actor/grad_norm/{c}" doc:"the same as grad_norm/all/{c}"`
	Losses     map[string]float64 `metric:"actor/loss/{c}" doc:"the same as grad_norm/all/loss/{c}"`
	Confidence float64            `metric:"grad_analysis/confidence,omitzero" doc:"of the intervals"`
	Memory     float64            `metric:"grad_analysis/memory_mib,omitzero" unit:"MiB" doc:"what the buffers and sketches took"`
}

// Due implements Observer: steps 1, 1 + every, 1 + 2·every, …
func (o *bucketObserver) Due(step int) bool { return session.AnalysisDue(o.Config.Analysis, step) }

// Look implements Observer. It writes the step's files into the folder analysis.
func (o *bucketObserver) Look(ctx context.Context, s *Step) error {
	out := newAnalysed(o.Config)
	out.pulls = predicts(o.Config.Analysis)
	if err := o.step(ctx, s, out); err != nil {
		return fmt.Errorf("gradient analysis: %w", err)
	}
	s.analysed = out
	maps.Copy(s.Line, out.line)
	fmt.Fprint(o.Console, out.text)
	if o.World.Writes() {
		if err := gradients.WriteFiles(o.dir, s.Number, out.line); err != nil {
			return err
		}
	}
	if o.Config.Analysis.ExitAfter {
		s.Line["trainer/exited_after_gradient_analysis"] = 1.0
		return errAnalysed
	}
	return nil
}

func (o *bucketObserver) step(ctx context.Context, s *Step, out *analysed) error {
	if !o.Config.Separate() {
		return o.batch(ctx, &s.Chosen, false, out)
	}
	episodes, err := o.play(ctx, s.Number, out.line)
	if err != nil {
		return err
	}
	if len(episodes) == 0 {
		o.Log.Warnf("step %d: no episode of the gradient analysis was played to its end; it is left out", s.Number)
		return nil
	}
	_, err = o.episodes(ctx, episodes, o.playedNow(), o.Config.Analysis.LogPrefilter, out)
	return err
}

// play plays the separate analysis batch of a step.
func (o *bucketObserver) play(ctx context.Context, step int, line metrics.Line) ([]*episode.Episode, error) {
	plan := rollout.AnalysisPlan(o.Config, step)
	episodes, _, err := o.rollouts.Play(ctx, plan, fmt.Sprintf("step %d analysis rollout", step))
	if err != nil {
		return nil, err
	}
	line.Add(sourceMetrics{Groups: plan.Groups(), GroupSize: plan.Sources[0].GroupSize})
	return episodes, o.rollouts.Save(episodes, fmt.Sprintf("analysis_%d.jsonl", step),
		o.Config.Run.SaveRollouts == "all")
}

// playedNow is the provenance of episodes that are played for an analysis.
func (o *bucketObserver) playedNow() source.Provenance {
	return source.Provenance{Weights: source.Present, Exact: *o.exact}
}

// episodes filters a batch that is there for the analysis only, scores it, and analyses it: before the filter too if
// asked. It gives what the filter kept.
func (o *bucketObserver) episodes(ctx context.Context, episodes []*episode.Episode, from source.Provenance,
	unfiltered bool, out *analysed) (*Prepared, error) {
	prepare := *o.preparation
	prepare.clock = nil // its times are the analysis'
	analyse := func(unfiltered bool) (*Prepared, error) {
		chosen, err := prepare.choose(ctx, episodes, unfiltered)
		s := Prepared{Selection: chosen}
		if err == nil && s.Batch.Len() > 0 {
			s, err = prepare.prepare(ctx, chosen, from, 0, metrics.Line{})
		}
		if err == nil {
			err = o.batch(ctx, &s, unfiltered, out)
		}
		return &s, err
	}
	if unfiltered {
		whole, err := analyse(true)
		if err != nil {
			return whole, err
		}
		out.line.Add(sourceMetrics{AllSource: len(episodes), AllKept: whole.Batch.Len()})
	}
	chosen, err := analyse(false)
	if err == nil {
		out.line.Add(sourceMetrics{Source: len(episodes), Kept: new(chosen.Batch.Len()), Filter: &chosen.Metrics})
	}
	return chosen, err
}

// batch measures one prepared batch. A batch without episodes, or with a group of one, has nothing to measure.
func (o *bucketObserver) batch(ctx context.Context, s *Prepared, unfiltered bool, out *analysed) error {
	title, empty := "grad_norm", s.Batch.Len() == 0
	if unfiltered {
		title = "grad_norm_prefilter"
	} else {
		out.line.Add(bucketMetrics{Empty: &empty})
	}
	if empty {
		o.Log.Warnf("gradient analysis (%s): the filter kept no group of %d; nothing is analysed", title, len(s.Std))
		return nil
	}
	buckets, err := bucketsOf(o.Config, s.Selection)
	if err != nil {
		o.Log.Warnf("gradient analysis (%s): %v; nothing is analysed", title, err)
		return nil
	}
	noteBuckets(o.Session, buckets)
	subject := subjectOf(o.Session, s)
	options := gradients.OptionsOf(o.Config)
	options.Width, options.Pulls = s.width, out.pulls && !unfiltered
	bar, done := o.Console.Bar("gradient analysis", options.Passes(len(subject.Columns))*s.Batch.Len()), 0
	defer bar.Close()
	subject.Batch.Progress = func(sequences int) { done += sequences; bar.Set(done) }
	report, err := gradients.MeasureBuckets(ctx, subject, buckets, options)
	if err != nil {
		return err
	}
	out.report, out.chosen, out.batch = report, s, subject.Batch
	m := bucketMetrics{Memory: float64(report.Plan.Bytes) / (1 << 20)}
	if options.Profile == gradients.Exact {
		m.Confidence = options.Confidence
	}
	if unfiltered {
		m.Unfiltered = report
	} else {
		m.Kept, m.Norms, m.Losses = report, map[string]float64{}, report.All().Losses
		for name, term := range report.All().Terms {
			m.Norms[name] = term.Norm
		}
	}
	out.line.Add(m)
	text := report.Console(title)
	out.text += text
	o.Log.File(strings.TrimSpace(text) + "\n" + report.Plan.String())
	return nil
}

// subjectOf is the policy on a prepared batch, under the loss of the update.
func subjectOf(e *session.Session, s *Prepared) gradients.Subject {
	batch, o := *s.Batch, s.objective
	batch.Weigh(e.Config.Actor.LossAggregation, s.width)
	return gradients.Subject{Policy: e.Actor, Batch: &batch, Objective: o, Columns: gradients.LossTerms(o)}
}

// bucketsOf sorts the groups of a batch by the standard deviation of their rewards. It is an error that a group has
// none: groups that are given or whose members failed may have one member.
func bucketsOf(c *config.Config, s Selection) ([]gradients.Bucket, error) {
	a, groups := c.Analysis, gradients.Groups(session.GroupIDs(s.Episodes), s.RewardStd)
	return gradients.Split(groups, a.Buckets, a.NumBuckets, a.Profile == gradients.Paper)
}

// noteBuckets says where quantile buckets are not what was asked for.
func noteBuckets(e *session.Session, buckets []gradients.Bucket) {
	if e.Config.Analysis.Buckets != "quantile" {
		return
	}
	if n := e.Config.Analysis.NumBuckets; len(buckets) < n {
		e.Log.Warnf("gradient analysis: %d buckets were asked for, but there are %d groups: %d buckets of one group",
			n, len(buckets), len(buckets))
	}
	first, last := buckets[0].Groups, buckets[len(buckets)-1].Groups
	if low, high := first[0].Std, last[len(last)-1].Std; low == high && len(buckets) > 1 {
		e.Log.Warnf("gradient analysis: all groups have the reward standard deviation %g: buckets follow the order of "+
			"groups and mean nothing", low)
	}
}
