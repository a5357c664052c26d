package trainer

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"gyre/orchestrate/analysis"
	"gyre/orchestrate/episode"
	"gyre/orchestrate/rollout"
	"gyre/torch"
)

// analysed collects what an analysis has to say: numbers, and what is not a number (tables, the profile).
type analysed struct {
	numbers map[string]float64
	others  map[string]any
	text    string // tables for people
}

func newAnalysed(profile string) *analysed {
	return &analysed{numbers: map[string]float64{}, others: map[string]any{"grad_analysis/profile": profile}}
}

// values is everything in the form that metrics are logged in.
func (a *analysed) values() map[string]any {
	out := maps.Clone(a.others)
	for name, v := range a.numbers {
		out[name] = v
	}
	return out
}

// analysisDue reports whether the gradients of this step are analysed: at steps 1, 1 + every, 1 + 2·every, …
func (t *Trainer) analysisDue(step int) bool {
	a := t.config.Analysis
	return a.Enabled && a.Every > 0 && (step-1)%a.Every == 0
}

// analyse takes bucket gradients of the training batch, or of a batch played for the purpose, and writes the step's files into the folder
// analysis. Weights, optimizer, counters of the training batch and every random stream are left as they are.
func (t *Trainer) analyse(ctx context.Context, step int, training selection, m map[string]float64, tables map[string]any) error {
	out := newAnalysed(t.config.Analysis.Profile)
	err := t.analyseStep(ctx, step, training, out)
	if err != nil {
		return fmt.Errorf("gradient analysis: %w", err)
	}
	maps.Copy(m, out.numbers)
	maps.Copy(tables, out.others)
	fmt.Fprint(t.console, out.text)
	return analysis.WriteFiles(t.dir.File("analysis"), step, out.values())
}

func (t *Trainer) analyseStep(ctx context.Context, step int, training selection, out *analysed) error {
	out.numbers["grad_analysis/uses_training_batch"] = flag(!t.config.Separate())
	if !t.config.Separate() {
		return t.analyseBatch(ctx, training, "grad_norm", out)
	}
	episodes, err := t.playAnalysis(ctx, step, out)
	if err != nil {
		return err
	}
	if t.config.Run.SaveRollouts == "all" {
		if err := episode.WriteFile(t.dir.File("rollouts", fmt.Sprintf("analysis_%d.jsonl", step)), episodes); err != nil {
			return fmt.Errorf("saving the episodes: %w", err)
		}
	}
	return t.analyseEpisodes(ctx, episodes, t.config.Analysis.LogPrefilter, out)
}

// playAnalysis plays the separate analysis batch of a step.
func (t *Trainer) playAnalysis(ctx context.Context, step int, out *analysed) ([]*episode.Episode, error) {
	plan := rollout.AnalysisPlan(t.config, step)
	episodes, _, err := t.play(ctx, plan, fmt.Sprintf("step %d analysis rollout", step))
	if err != nil {
		return nil, err
	}
	out.numbers["grad_analysis/source_env_groups"] = float64(plan.Groups())
	out.numbers["grad_analysis/source_group_size"] = float64(plan.Sources[0].GroupSize)
	return episodes, nil
}

// analyseEpisodes filters a batch that is there for the analysis only, scores it, and analyses it: before the filter too if asked.
func (t *Trainer) analyseEpisodes(ctx context.Context, episodes []*episode.Episode, prefilter bool, out *analysed) error {
	t.analysing = true
	defer func() { t.analysing = false }()
	out.numbers["grad_analysis/source_batch_size"] = float64(len(episodes))
	if prefilter {
		whole, err := t.choose(episodes, true)
		if err != nil {
			return err
		}
		out.numbers["grad_analysis_prefilter/source_batch_size"] = float64(len(episodes))
		out.numbers["grad_analysis_prefilter/adjusted_batch_size"] = float64(len(whole.samples))
		if err := t.prepare(ctx, whole, map[string]float64{}); err != nil {
			return err
		}
		if err := t.analyseBatch(ctx, whole, "grad_norm_prefilter", out); err != nil {
			return err
		}
	}
	chosen, err := t.choose(episodes, false)
	if err != nil {
		return err
	}
	for name, v := range chosen.Metrics {
		out.numbers["grad_analysis/"+strings.TrimPrefix(name, "rollout/")] = v
	}
	out.numbers["grad_analysis/adjusted_batch_size"] = float64(len(chosen.samples))
	if len(chosen.samples) > 0 {
		if err := t.prepare(ctx, chosen, map[string]float64{}); err != nil {
			return err
		}
	}
	if err := t.analyseBatch(ctx, chosen, "grad_norm", out); err != nil || t.partsStep == 0 || len(chosen.samples) == 0 {
		return err
	}
	text, err := t.measureComponents(ctx, t.partsStep, chosen.samples, t.partsFolder, out.others)
	if err != nil {
		return fmt.Errorf("of the reward's parts: %w", err)
	}
	out.text += "\n" + text
	return nil
}

// analyseBatch measures one prepared batch and names its metrics with the prefix. A batch without episodes has none.
func (t *Trainer) analyseBatch(ctx context.Context, s selection, prefix string, out *analysed) error {
	if prefix == "grad_norm" {
		out.numbers["grad_analysis/empty_after_filter"] = flag(len(s.samples) == 0)
	}
	if len(s.samples) == 0 {
		t.log.Warnf("gradient analysis (%s): the filter kept no group of %d; nothing is analysed", prefix, len(s.groups))
		return nil
	}
	buckets, err := t.buckets(s.samples)
	if err != nil {
		return err
	}
	t.noteBuckets(buckets)
	batch, err := t.analysisBatch(s)
	if err != nil {
		return err
	}
	report, err := analysis.Measure(ctx, t.actor.model, buckets, batch, analysisOptions(t.config))
	if err != nil {
		return err
	}
	maps.Copy(out.numbers, report.Metrics(prefix))
	for name, table := range report.Tables(prefix) {
		out.others[name] = table
	}
	for name, why := range report.Notes(prefix) {
		out.others[name] = why
	}
	if prefix == "grad_norm" {
		maps.Copy(out.numbers, report.TopLevel())
	}
	if o := report.Options; o.Profile == analysis.Exact && o.Statistics {
		out.numbers["grad_analysis/confidence"] = o.Confidence
	}
	out.numbers["grad_analysis/memory_mib"] = float64(report.Plan.Bytes) / (1 << 20)
	text := report.Console(prefix)
	out.text += text
	t.log.File(strings.TrimSpace(text) + "\n" + report.Plan.String())
	return nil
}

// buckets sorts the batch's groups by their spread.
func (t *Trainer) buckets(samples []*Sample) ([]analysis.Bucket, error) {
	groups := map[int]*analysis.Group{}
	var order []int
	for i, x := range samples {
		g, ok := groups[x.Group]
		if !ok {
			g = &analysis.Group{ID: x.Group, Spread: x.Spread}
			groups[x.Group] = g
			order = append(order, x.Group)
		}
		g.Samples = append(g.Samples, i)
	}
	list := make([]analysis.Group, len(order))
	for i, id := range order {
		list[i] = *groups[id]
	}
	return analysis.Split(list, t.config.Analysis.Buckets, t.config.Analysis.NumBuckets,
		t.config.Analysis.Profile == analysis.Paper)
}

// noteBuckets says where quantile buckets are not what was asked for.
func (t *Trainer) noteBuckets(buckets []analysis.Bucket) {
	if t.config.Analysis.Buckets != "quantile" {
		return
	}
	if n := t.config.Analysis.NumBuckets; len(buckets) < n {
		t.log.Warnf("gradient analysis: %d buckets were asked for, but there are %d groups: %d buckets of one group", n, len(buckets), len(buckets))
	}
	first, last := buckets[0].Groups, buckets[len(buckets)-1].Groups
	if low, high := first[0].Spread, last[len(last)-1].Spread; low == high && len(buckets) > 1 {
		t.log.Warnf("gradient analysis: all groups have the reward spread %g: buckets follow the order of groups and mean nothing", low)
	}
}

// analysisBatch gives the analysis its backward passes: the update's own, with a buffer per component.
func (t *Trainer) analysisBatch(s selection) (analysis.Batch, error) {
	loss, mode := t.policyLoss(), t.config.Actor.LossAggregation
	weights, err := lossWeights(s.samples, all(len(s.samples)), mode)
	if err != nil {
		return analysis.Batch{}, err
	}
	backward := func(samples []int, weights map[int][]float32, out []torch.Component) (torch.PolicyStats, error) {
		total := torch.PolicyStats{Components: map[string]torch.ComponentStats{}}
		for _, micro := range microBatches(s.samples, samples, t.config.Actor.MicroBatchTokens) {
			stats, err := t.policyBackward(s.samples, micro, weights, loss, out)
			if err != nil {
				return total, err
			}
			for name, c := range stats.Components {
				total.Components[name] = torch.ComponentStats{Loss: total.Components[name].Loss + c.Loss}
			}
		}
		return total, nil
	}
	b := analysis.Batch{
		Entropy: loss.EntropyCoef != 0, KL: loss.KL != torch.KLNone,
		Backward: func(samples []int, out []torch.Component) (torch.PolicyStats, error) {
			return backward(samples, weights, out)
		},
		Alone: func(samples []int, scale float64, out []torch.Component) (torch.PolicyStats, error) {
			weights, err := lossWeights(s.samples, samples, mode)
			if err != nil {
				return torch.PolicyStats{}, err
			}
			for _, w := range weights {
				for i := range w {
					w[i] *= float32(scale)
				}
			}
			stats, err := backward(samples, weights, out)
			for name, c := range stats.Components {
				stats.Components[name] = torch.ComponentStats{Loss: c.Loss / scale}
			}
			return stats, err
		},
	}
	for _, x := range s.samples {
		b.Tokens = append(b.Tokens, x.PolicyTokens())
	}
	return b, nil
}
