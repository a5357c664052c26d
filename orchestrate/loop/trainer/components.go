package trainer

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/components"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/model/checkpoint"
	"gyre/torch"
)

// componentGradients is the phase that measures the gradients of the named parts of the reward.
type componentGradients struct {
	*equipment
	dir   string // that files go into; "" writes none
	saves bool   // the gradients, too: known to the ranks that write nothing
	files *components.Saver
}

// Due reports whether the gradients of the reward's parts are measured at this step: at steps 1, 1 + every, 1 + 2·every, …
func (g *componentGradients) Due(step int) bool {
	c := g.config.Components
	return c.Enabled && (step-1)%c.Every == 0
}

// hasParts reports whether any episode's reward has named parts.
func hasParts(episodes []*episode.Episode) bool {
	return slices.ContainsFunc(episodes, func(e *episode.Episode) bool { return len(e.Components) > 0 })
}

// partWeights are what the configuration multiplies the parts by; nil where it does not say.
func partWeights(c *config.Config) map[string]float64 {
	if len(c.Components.Weights) > 0 {
		return c.Components.Weights
	}
	out := map[string]float64{}
	for _, r := range c.Rewards {
		out[r.Name] = r.Weight
	}
	return out
}

// componentFolder is where the gradients of the parts are kept.
func componentFolder(c *config.Config) string { return "gradient_analysis_" + dataName(c) }

// dataName is what the folders of gradients and rewards say of the data.
func dataName(c *config.Config) string {
	if c.Components.Data == "" && len(c.Envs) > 0 {
		return strings.ReplaceAll(c.Envs[0].Tag, "/", "_")
	}
	return c.Components.Data
}

// Look measures the gradients of the parts, unless the filter kept nothing, and writes them to the log.
func (g *componentGradients) Look(ctx context.Context, s *Step) error {
	if s.Chosen.Batch.Len() == 0 {
		return nil
	}
	text, err := g.run(ctx, s.Number, s.Chosen, s.Line)
	if err != nil {
		return fmt.Errorf("gradients of the reward components: %w", err)
	}
	g.log.File(strings.TrimSpace(text))
	return nil
}

// run measures the gradients of the parts of a prepared batch's reward, at the present weights, and leaves everything as it was.
// Files count the updates before the step: the first step's have the number 0.
func (g *componentGradients) run(ctx context.Context, step int, s Selection, values map[string]any) (string, error) {
	c := g.config.Components
	c.Names = experiment.RewardParts(g.config)
	batch, err := g.batch(ctx, s)
	if err != nil {
		return "", err
	}
	advantages, err := components.Estimate(batch.Samples, c, partWeights(g.config), g.config.Algorithm)
	if err != nil {
		return "", err
	}
	options := components.Options{Permutations: c.Permutations, Confidence: g.config.Analysis.Confidence, Seed: g.config.Run.Seed, Step: uint64(step)}
	if c.Buckets && !slices.ContainsFunc(s.RewardStd, math.IsNaN) {
		if options.Buckets, err = g.buckets(s); err != nil {
			return "", err
		}
	}
	if g.saves && c.Enabled && c.Save != "none" {
		options.Keep = func(names []string, gradients []*torch.Gradients, parameters []torch.Parameter) error {
			return g.keep(ctx, step, len(advantages.Names), names, gradients, parameters)
		}
	}
	report, err := components.Measure(ctx, g.actor.Model, batch, advantages, options)
	if err != nil {
		return "", err
	}
	maps.Copy(values, report.Values())
	if g.dir == "" {
		return report.Console(), nil
	}
	path := filepath.Join(g.dir, fmt.Sprintf("cosines_step_%d.csv", step-1))
	return report.Console(), atomicfile.Write(path, func(w io.Writer) error { return report.WriteCSV(w, c.Save != "none") })
}

// batch gives the measurement its backward passes: of single episodes, as of the policy that sampled them, and of the loss's other terms as
// in the update.
func (g *componentGradients) batch(ctx context.Context, s Selection) (components.Batch, error) {
	batch := *s.Batch
	if err := batch.Weigh(g.config.Actor.LossAggregation, s.width); err != nil {
		return components.Batch{}, err
	}
	o := objective(g.config)
	b := components.Batch{Entropy: o.EntropyCoef != 0, KL: o.KL != torch.KLNone}
	// Gradients in shards are sums of all ranks by the end of a pass: an episode's own is to be had by one pass of all ranks after the other.
	oneByOne := g.actor.InStep() && !g.config.FSDP.Deterministic
	if !oneByOne && (g.world != nil || g.config.FSDP.Deterministic) {
		b.InStep = g.actor.InStep()
		b.Spread = func(chosen []int, into []*torch.Gradients, run func([]int) error) error {
			return g.actor.Deal(batch.Take(chosen), into, func(_ int, part []int) error {
				own := train.Rows(chosen, part)
				if !b.InStep {
					return run(own)
				}
				most, err := g.world.Max(ctx, float64(len(own)))
				if err != nil {
					return err
				}
				return run(slices.Concat(own, slices.Repeat([]int{-1}, int(most)-len(own))))
			})
		}
		b.Share = func(own map[int][]float32) (map[int][]float32, error) {
			all, err := ranks.Gather(ctx, g.world, own)
			for _, part := range all {
				maps.Copy(own, part)
			}
			return own, err
		}
	}
	foreign := slices.ContainsFunc(s.Episodes, func(x *episode.Episode) bool { return !g.own(x) })
	b.Backward = func(i int, tasks []components.Task, entropy, kl *torch.Gradients) error {
		if i >= 0 && oneByOne && i%g.world.Size() != g.world.Rank() {
			i = -1 // this rank goes along with nothing
		}
		return g.backward(&batch, i, o, tasks, entropy, kl, foreign)
	}
	for i, x := range s.Episodes {
		row := components.Sample{Group: x.Group, Tokens: x.PolicyTokens(), Score: x.Score, Parts: map[string]float64{}}
		for name, rewards := range x.Components {
			for _, r := range rewards {
				row.Parts[name] += r.Value
			}
		}
		if a := g.config.Algorithm; !a.ComparesEpisodes() {
			row.Path = tokenPath(x, batch.Values, i, row.Parts, creditsTurns(g.config))
		}
		b.Samples = append(b.Samples, row)
	}
	return b, nil
}

// backward takes the gradients of one row: of the on-policy loss under several advantages, and of the loss's other terms.
func (g *componentGradients) backward(batch *train.Batch, i int, o train.Objective, tasks []components.Task, entropy, kl *torch.Gradients, foreign bool) error {
	alone, row := *batch, i
	var weight, ones []float32
	if i >= 0 {
		alone, row, weight = *batch.Take([]int{i}), 0, batch.Weights[i]
		ones = slices.Repeat([]float32{1}, len(weight))
	}
	one := func(values []float32) [][]float32 {
		if i < 0 {
			return nil
		}
		return [][]float32{values}
	}
	others := []train.Column{{Name: torch.Task, Kind: torch.TermTask}, {Name: torch.Entropy, Kind: torch.TermEntropy, Into: entropy},
		{Name: torch.KL, Kind: torch.TermKL, Into: kl}}
	if (entropy != nil || kl != nil) && !foreign { // every ratio is 1: one forward pass serves all
		alone.Advantages = one(ones)
		for k, task := range tasks {
			own := task.Advantages
			if own == nil {
				own = ones
			}
			others = append(others, train.Column{Name: fmt.Sprintf("task %d", k), Kind: torch.TermTask, Advantages: one(own), Into: task.Into})
		}
		_, err := g.actor.Alone(&alone, row, o, others)
		return err
	}
	var columns []train.Column
	for k, task := range tasks {
		own := weight
		if task.Advantages != nil && i >= 0 {
			own = make([]float32, len(weight))
			for t, v := range task.Advantages {
				own[t] = v * weight[t]
			}
		}
		columns = append(columns, train.Column{Name: fmt.Sprintf("task %d", k), Kind: torch.TermTask, Weights: one(own), Into: task.Into})
	}
	_, err := g.actor.Alone(&alone, row, train.Likelihood(o.Temperature), columns)
	if err != nil || entropy == nil && kl == nil {
		return err
	}
	_, err = g.actor.Alone(&alone, row, o, others)
	return err
}

// tokenPath is an episode token by token, its rewards placed as in the update.
func tokenPath(x *episode.Episode, values [][]float32, row int, totals map[string]float64, perTurn bool) *components.Path {
	p := &components.Path{Mask: x.Mask, Rewards: tokenRewards(x, perTurn), Parts: map[string][]float64{}, TurnEnds: turnEnds(x)}
	if values != nil {
		p.Values = widen(values[row])
	}
	for name, rewards := range x.Components {
		part := *x
		part.Score, part.Rewards = totals[name], rewards
		p.Parts[name] = tokenRewards(&part, perTurn)
	}
	return p
}

// own reports whether a sample's old log-probs are the policy's own: those that given episodes bring may be another's.
func (g *componentGradients) own(x *episode.Episode) bool {
	return g.replay == nil || x.Logprob == nil || g.config.Actor.RecomputeLogprobs
}

// wholeGradient is the gradient of parameter i, which every rank holds a part of. It is collective.
func (g *componentGradients) wholeGradient(ctx context.Context, from *torch.Gradients, i int, entries int64) ([]float32, error) {
	part, err := from.Shard(i)
	if err != nil {
		return nil, err
	}
	defer part.Tensor.Close()
	data, whole := make([]byte, 4*entries), make([]float32, entries)
	if err := checkpoint.Assemble(ctx, g.world.Data(), part, torch.F32, data); err != nil {
		return nil, err
	}
	_, err = binary.Decode(data, binary.LittleEndian, whole)
	return whole, err
}

// keep starts writing the parts' gradients, in full if the configuration allows that much.
func (g *componentGradients) keep(ctx context.Context, step, parts int, names []string, gradients []*torch.Gradients, parameters []torch.Parameter) error {
	c := g.config.Components
	if g.files == nil {
		full := components.FullBytes(parts, experiment.Parameters(g.actor.Model.Config))
		g.files = &components.Saver{Dir: g.dir, Projection: c.Save == "projection" || full > int64(c.SaveMiB)<<20,
			Values: func(from *torch.Gradients, i int, entries int64) ([]float32, error) {
				return g.wholeGradient(ctx, from, i, entries)
			}}
		if g.files.Projection && c.Save == "full" {
			g.log.Warnf("components: the gradients of a step take %d MiB, more than components.save_mib = %d: random projections are written instead", full>>20, c.SaveMiB)
		}
	}
	return g.files.Save(step-1, names[:parts], gradients, parameters)
}
