package trainer

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"gyre/orchestrate/analysis"
	"gyre/orchestrate/rollout"
	"gyre/torch"
)

// analysisDue reports whether the gradients of this step are analysed: at steps 1, 1 + every, 1 + 2·every, …
func (t *Trainer) analysisDue(step int) bool {
	a := t.config.Analysis
	return a.Enabled && a.Every > 0 && (step-1)%a.Every == 0
}

// analyse takes bucket gradients of the training batch, or of a batch played for the purpose. Weights, optimizer, counters of the
// training batch and every random stream are left as they are.
func (t *Trainer) analyse(ctx context.Context, step int, training selection, m map[string]float64, tables map[string]any) error {
	a := t.config.Analysis
	if a.Groups == 0 && a.GroupSize == 0 {
		m["grad_analysis/uses_training_batch"] = 1
		return t.analyseBatch(ctx, training, "grad_norm", m, tables)
	}
	m["grad_analysis/uses_training_batch"] = 0
	plan := rollout.AnalysisPlan(t.config, step)
	episodes, _, err := t.play(ctx, plan, fmt.Sprintf("step %d analysis rollout", step))
	if err != nil {
		return err
	}
	m["grad_analysis/source_env_groups"], m["grad_analysis/source_group_size"] = float64(plan.Groups()), float64(plan.Sources[0].GroupSize)
	m["grad_analysis/source_batch_size"] = float64(len(episodes))

	t.analysing = true
	defer func() { t.analysing = false }()
	if a.LogPrefilter {
		whole, err := t.choose(episodes, true)
		if err != nil {
			return err
		}
		m["grad_analysis_prefilter/source_batch_size"] = float64(len(whole.samples))
		if err := t.prepare(ctx, whole, map[string]float64{}); err != nil {
			return err
		}
		if err := t.analyseBatch(ctx, whole, "grad_norm_prefilter", m, tables); err != nil {
			return err
		}
	}
	chosen, err := t.choose(episodes, false)
	if err != nil {
		return err
	}
	for name, v := range chosen.Metrics {
		m["grad_analysis/"+strings.TrimPrefix(name, "rollout/")] = v
	}
	m["grad_analysis/empty_after_filter"] = flag(len(chosen.samples) == 0)
	m["grad_analysis/adjusted_batch_size"] = float64(len(chosen.samples))
	if len(chosen.samples) == 0 {
		t.log.Warnf("step %d: the filter kept no group of the analysis batch; nothing was analysed", step)
		return nil
	}
	if err := t.prepare(ctx, chosen, map[string]float64{}); err != nil {
		return err
	}
	return t.analyseBatch(ctx, chosen, "grad_norm", m, tables)
}

// analyseBatch measures one prepared batch and writes its metrics under the prefix.
func (t *Trainer) analyseBatch(ctx context.Context, s selection, prefix string, m map[string]float64, tables map[string]any) error {
	groups := map[int]*analysis.Group{}
	var order []int
	tokens := make([]int, len(s.samples))
	for i, x := range s.samples {
		g, ok := groups[x.Group]
		if !ok {
			g = &analysis.Group{ID: x.Group, Spread: x.Spread}
			groups[x.Group] = g
			order = append(order, x.Group)
		}
		g.Samples = append(g.Samples, i)
		tokens[i] = x.PolicyTokens()
	}
	list := make([]analysis.Group, len(order))
	for i, id := range order {
		list[i] = *groups[id]
	}
	buckets, err := analysis.Split(list, t.config.Analysis.Buckets, t.config.Analysis.NumBuckets)
	if err != nil {
		return fmt.Errorf("gradient analysis: %w", err)
	}
	weights, err := lossWeights(s.samples, all(len(s.samples)), t.config.Actor.LossAggregation)
	if err != nil {
		return err
	}
	loss := t.policyLoss()
	report, err := analysis.Measure(ctx, t.actor.model, buckets, analysis.Batch{
		Tokens: tokens, Entropy: loss.EntropyCoef != 0, KL: loss.KL != torch.KLNone,
		Backward: func(samples []int, out torch.Components) (torch.PolicyStats, error) {
			total := torch.PolicyStats{}
			for _, micro := range microBatches(s.samples, samples, t.config.Actor.MicroBatchTokens) {
				stats, err := t.policyBackward(s.samples, micro, weights, loss, out)
				if err != nil {
					return total, err
				}
				total.PolicyLoss += stats.PolicyLoss
				total.EntropyLoss += stats.EntropyLoss
				total.KLLoss += stats.KLLoss
			}
			return total, nil
		},
	})
	if err != nil {
		return fmt.Errorf("gradient analysis: %w", err)
	}
	m["grad_analysis/exact_profile"] = 1
	maps.Copy(m, report.Metrics(prefix))
	for name, table := range report.Tables(prefix) {
		tables[name] = table
	}
	if prefix == "grad_norm" {
		merge(m, "", report.TopLevel())
	}
	fmt.Fprint(t.console, report.Console(prefix))
	t.log.File(strings.TrimSpace(report.Console(prefix)))
	return nil
}
