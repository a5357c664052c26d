package trainer

import (
	"context"
	"fmt"
	"maps"
	"math"
	"strings"

	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/analysis"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/run/metrics"
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

// gradientAnalysis is the phase that measures the gradients of a batch by reward-spread bucket.
type gradientAnalysis struct {
	*equipment
	rollouts    *rollouts
	preparation *preparation
	dir         string              // the folder analysis of the run
	parts       *componentGradients // measured with it; nil in a run, which measures them at steps of their own
}

// Due reports whether the gradients of this step are analysed: at steps 1, 1 + every, 1 + 2·every, …
func (g *gradientAnalysis) Due(step int) bool {
	return analysisDue(g.config.Analysis, step)
}

func analysisDue(a config.Analysis, step int) bool { return a.Enabled && (step-1)%a.Every == 0 }

// possible reports whether a step's gradients can be analysed: replayed groups may have one member, and nothing plays a separate batch.
func (g *gradientAnalysis) possible(step int, s Selection) bool {
	if g.replay == nil {
		return true
	}
	if g.config.Separate() {
		g.log.Warnf("step %d: no gradient analysis: with --replay nothing plays its separate batch (analysis.groups, analysis.group_size)", step)
		return false
	}
	for i, std := range s.RewardStd {
		if math.IsNaN(std) {
			g.log.Warnf("step %d: no gradient analysis: group %d has one member, so it has no reward standard deviation", step, s.Episodes[i].Group)
			return false
		}
	}
	return true
}

// Look takes bucket gradients of the training batch, or of a batch played for the purpose, and writes the step's files into the folder
// analysis. Weights, optimizer, counters of the training batch and every random stream are left as they are.
func (g *gradientAnalysis) Look(ctx context.Context, s *Step) error {
	if !g.possible(s.Number, s.Chosen) {
		return nil
	}
	out := newAnalysed(g.config.Analysis.Profile)
	err := g.analyseStep(ctx, s.Number, s.Chosen, out)
	if err != nil {
		return fmt.Errorf("gradient analysis: %w", err)
	}
	maps.Copy(s.Line, out.values())
	fmt.Fprint(g.console, out.text)
	if g.world.Writes() {
		if err := analysis.WriteFiles(g.dir, s.Number, out.values()); err != nil {
			return err
		}
	}
	if g.config.Analysis.ExitAfter {
		s.Line["trainer/exited_after_gradient_analysis"] = 1.0
		return errAnalysed
	}
	return nil
}

func (g *gradientAnalysis) analyseStep(ctx context.Context, step int, training Selection, out *analysed) error {
	out.numbers["grad_analysis/uses_training_batch"] = flag(!g.config.Separate())
	if !g.config.Separate() {
		return g.analyseBatch(ctx, training, "grad_norm", out)
	}
	episodes, err := g.rollouts.analysis(ctx, step, out.numbers)
	if err != nil {
		return err
	}
	return g.analyseEpisodes(ctx, step, episodes, g.config.Analysis.LogPrefilter, out)
}

// analyseEpisodes filters a batch that is there for the analysis only, scores it, and analyses it: before the filter too if asked.
func (g *gradientAnalysis) analyseEpisodes(ctx context.Context, step int, episodes []*episode.Episode, prefilter bool, out *analysed) error {
	out.numbers["grad_analysis/source_batch_size"] = float64(len(episodes))
	prepare := *g.preparation
	prepare.clock = nil // its times are the analysis'
	if prefilter {
		whole, err := prepare.choose(ctx, episodes, true)
		if err != nil {
			return err
		}
		out.numbers["grad_analysis_prefilter/source_batch_size"] = float64(len(episodes))
		out.numbers["grad_analysis_prefilter/adjusted_batch_size"] = float64(whole.Batch.Len())
		if err := prepare.prepare(ctx, &whole, metrics.Line{}); err != nil {
			return err
		}
		if err := g.analyseBatch(ctx, whole, "grad_norm_prefilter", out); err != nil {
			return err
		}
	}
	chosen, err := prepare.choose(ctx, episodes, false)
	if err != nil {
		return err
	}
	for name, v := range chosen.Metrics {
		out.numbers["grad_analysis/"+strings.TrimPrefix(name, "rollout/")] = v
	}
	out.numbers["grad_analysis/adjusted_batch_size"] = float64(chosen.Batch.Len())
	if chosen.Batch.Len() > 0 {
		if err := prepare.prepare(ctx, &chosen, metrics.Line{}); err != nil {
			return err
		}
	}
	if err := g.analyseBatch(ctx, chosen, "grad_norm", out); err != nil || g.parts == nil || chosen.Batch.Len() == 0 {
		return err
	}
	text, err := g.parts.run(ctx, step, chosen, out.others)
	if err != nil {
		return fmt.Errorf("of the reward's parts: %w", err)
	}
	out.text += "\n" + text
	return nil
}

// analyseBatch measures one prepared batch and names its metrics with the prefix. A batch without episodes has none.
func (g *gradientAnalysis) analyseBatch(ctx context.Context, s Selection, prefix string, out *analysed) error {
	if prefix == "grad_norm" {
		out.numbers["grad_analysis/empty_after_filter"] = flag(s.Batch.Len() == 0)
	}
	if s.Batch.Len() == 0 {
		g.log.Warnf("gradient analysis (%s): the filter kept no group of %d; nothing is analysed", prefix, len(s.groups))
		return nil
	}
	buckets, err := g.buckets(s)
	if err != nil {
		return err
	}
	g.noteBuckets(buckets)
	bar, count := g.bar(s.Batch.Len())
	defer bar.Close()
	batch, err := g.analysisBatch(ctx, s, count)
	if err != nil {
		return err
	}
	report, err := analysis.Measure(ctx, g.actor.Model, buckets, batch, experiment.AnalysisOptions(g.config))
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
	g.log.File(strings.TrimSpace(text) + "\n" + report.Plan.String())
	return nil
}

// bar counts the samples that went through the passes of a batch, once for each of the loss's terms.
func (g *gradientAnalysis) bar(samples int) (bar *metrics.Bar, count func(samples int, out []torch.Term)) {
	total, done := samples*len(lossComponents(objective(g.config).PolicyLoss)), 0
	if g.config.Analysis.Profile == analysis.Paper { // bucket by bucket, and all of them again
		total *= 2
	}
	bar = g.console.Bar("gradient analysis", total)
	return bar, func(samples int, out []torch.Term) {
		for _, c := range out {
			if c.Into != nil {
				done += samples
			}
		}
		bar.Set(done)
	}
}

// buckets sorts the batch's groups by their spread.
func (e *equipment) buckets(s Selection) ([]analysis.Bucket, error) {
	groups := map[int]*analysis.Group{}
	var order []int
	for i, x := range s.Episodes {
		g, ok := groups[x.Group]
		if !ok {
			g = &analysis.Group{ID: x.Group, Spread: s.RewardStd[i]}
			groups[x.Group] = g
			order = append(order, x.Group)
		}
		g.Samples = append(g.Samples, i)
	}
	list := make([]analysis.Group, len(order))
	for i, id := range order {
		list[i] = *groups[id]
	}
	return analysis.Split(list, e.config.Analysis.Buckets, e.config.Analysis.NumBuckets,
		e.config.Analysis.Profile == analysis.Paper)
}

// noteBuckets says where quantile buckets are not what was asked for.
func (e *equipment) noteBuckets(buckets []analysis.Bucket) {
	if e.config.Analysis.Buckets != "quantile" {
		return
	}
	if n := e.config.Analysis.NumBuckets; len(buckets) < n {
		e.log.Warnf("gradient analysis: %d buckets were asked for, but there are %d groups: %d buckets of one group", n, len(buckets), len(buckets))
	}
	first, last := buckets[0].Groups, buckets[len(buckets)-1].Groups
	if low, high := first[0].Spread, last[len(last)-1].Spread; low == high && len(buckets) > 1 {
		e.log.Warnf("gradient analysis: all groups have the reward spread %g: buckets follow the order of groups and mean nothing", low)
	}
}

// analysisBatch gives the analysis its backward passes: the update's own, with a buffer per term. count hears of every micro-batch.
func (e *equipment) analysisBatch(ctx context.Context, s Selection, count func(samples int, out []torch.Term)) (analysis.Batch, error) {
	o, mode := objective(e.config), e.config.Actor.LossAggregation
	whole := *s.Batch
	if err := whole.Weigh(mode, s.width); err != nil {
		return analysis.Batch{}, err
	}
	backward := func(batch *train.Batch, out []torch.Term) (torch.PolicyStats, error) {
		columns := make([]train.Column, len(out))
		for i, term := range out {
			columns[i] = train.Column{Name: term.Name, Kind: term.Kind, Into: term.Into}
		}
		batch.Progress = func(sequences int) { count(sequences, out) }
		losses, err := e.actor.Backward(ctx, batch, o, columns)
		if err != nil {
			return torch.PolicyStats{}, err
		}
		stats := torch.PolicyStats{Terms: map[string]torch.TermStats{}}
		for i, term := range out {
			stats.Terms[term.Name] = losses.Columns[i]
		}
		return stats, nil
	}
	b := analysis.Batch{
		Components: lossComponents(o.PolicyLoss),
		Backward: func(samples []int, out []torch.Term) (torch.PolicyStats, error) {
			return backward(whole.Take(samples), out)
		},
		Alone: func(samples []int, scale float64, out []torch.Term) (torch.PolicyStats, error) {
			batch := whole.Take(samples)
			if err := batch.Weigh(mode, s.width); err != nil {
				return torch.PolicyStats{}, err
			}
			for _, w := range batch.Weights {
				for i := range w {
					w[i] *= float32(scale)
				}
			}
			stats, err := backward(batch, out)
			for name, c := range stats.Terms {
				stats.Terms[name] = torch.TermStats{Loss: c.Loss / scale}
			}
			return stats, err
		},
	}
	for _, x := range whole.Sequences {
		b.Tokens = append(b.Tokens, x.Sampled())
	}
	return b, nil
}

// lossComponents are the terms that the loss has.
func lossComponents(loss torch.PolicyLoss) []torch.Term {
	out := []torch.Term{{Name: torch.Task, Kind: torch.TermTask}}
	if loss.EntropyCoef != 0 {
		out = append(out, torch.Term{Name: torch.Entropy, Kind: torch.TermEntropy})
	}
	if loss.KL != torch.KLNone {
		out = append(out, torch.Term{Name: torch.KL, Kind: torch.TermKL})
	}
	return out
}
