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

// due reports whether the gradients of the reward's parts are measured at this step: at steps 1, 1 + every, 1 + 2·every, …
func (g *componentGradients) due(step int) bool {
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

// run measures the gradients of the parts of a prepared batch's reward, at the present weights, and leaves everything as it was.
// Files count the updates before the step: the first step's have the number 0.
func (g *componentGradients) run(ctx context.Context, step int, s selection, values map[string]any) (string, error) {
	c, samples := g.config.Components, s.samples
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
	if c.Buckets && !slices.ContainsFunc(samples, func(x *Sample) bool { return math.IsNaN(x.Spread) }) {
		if options.Buckets, err = g.buckets(samples); err != nil {
			return "", err
		}
	}
	if g.saves && c.Enabled && c.Save != "none" {
		options.Keep = func(names []string, gradients []*torch.Gradients, parameters []torch.Parameter) error {
			return g.keep(ctx, step, len(advantages.Names), names, gradients, parameters)
		}
	}
	report, err := components.Measure(ctx, g.actor.model, batch, advantages, options)
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
func (g *componentGradients) batch(ctx context.Context, s selection) (components.Batch, error) {
	samples := s.samples
	weights, err := lossWeights(samples, all(len(samples)), g.config.Actor.LossAggregation, s.width)
	if err != nil {
		return components.Batch{}, err
	}
	loss := g.policyLoss()
	b := components.Batch{Entropy: loss.EntropyCoef != 0, KL: loss.KL != torch.KLNone}
	// Gradients in shards are sums of all ranks by the end of a pass: an episode's own is to be had by one pass of all ranks after the other.
	oneByOne := g.collective() && !g.config.FSDP.Deterministic
	if !oneByOne && (g.world != nil || g.config.FSDP.Deterministic) {
		b.InStep = g.collective()
		b.Spread = func(chosen []int, into []*torch.Gradients, run func([]int) error) error {
			return g.spread(g.actor.model, samples, chosen, into, func(part []int) error {
				if !b.InStep {
					return run(part)
				}
				most, err := g.world.Max(ctx, float64(len(part)))
				if err != nil {
					return err
				}
				return run(slices.Concat(part, slices.Repeat([]int{-1}, int(most)-len(part))))
			})
		}
		b.Share = func(own map[int][]float32) (map[int][]float32, error) {
			return sums(ctx, g.world, own, func(first, _ []float32) []float32 { return first })
		}
	}
	foreign := slices.ContainsFunc(samples, func(x *Sample) bool { return !g.own(x) })
	b.Backward = func(i int, tasks []components.Task, entropy, kl *torch.Gradients) error {
		var micro []stretch
		var weight, ones []float32
		if mine := i >= 0 && !(oneByOne && i%g.world.Size() != g.world.Rank()); mine {
			micro, weight, ones = whole(samples, i), weights[i], slices.Repeat([]float32{1}, len(samples[i].IDs))
		} else { // this rank goes along with nothing
			tasks = slices.Clone(tasks)
			for k := range tasks {
				tasks[k].Advantages = nil
			}
		}
		if (entropy != nil || kl != nil) && !foreign { // every ratio is 1: one forward pass serves all
			terms := torch.Terms(nil, entropy, kl)
			for k, task := range tasks {
				own := task.Advantages
				if own == nil {
					own = ones
				}
				terms = append(terms, torch.Term{Name: fmt.Sprintf("task %d", k), Kind: torch.TermTask, Advantages: own, Into: task.Into})
			}
			alone := slices.Clone(samples)
			if len(micro) > 0 {
				one := *samples[i]
				one.Advantages, alone[i] = ones, &one
			}
			_, err := g.policyBackward(alone, micro, weights, loss, terms)
			return err
		}
		var terms []torch.Term
		for k, task := range tasks {
			own := weight
			if task.Advantages != nil {
				own = make([]float32, len(weight))
				for t, v := range task.Advantages {
					own[t] = v * weight[t]
				}
			}
			terms = append(terms, torch.Term{Name: fmt.Sprintf("task %d", k), Kind: torch.TermTask, Weights: own, Into: task.Into})
		}
		_, err := g.actor.model.PolicyBackward(pack(samples, micro), torch.PolicyInputs{Weights: weight},
			torch.PolicyLoss{Objective: torch.ObjectiveNLL, Temperature: g.temperature()}, terms)
		if err != nil || entropy == nil && kl == nil {
			return err
		}
		_, err = g.policyBackward(samples, micro, weights, loss, torch.Terms(nil, entropy, kl))
		return err
	}
	for _, x := range samples {
		s := components.Sample{Group: x.Group, Tokens: x.PolicyTokens(), Score: x.Score, Parts: map[string]float64{}}
		for name, rewards := range x.Components {
			for _, r := range rewards {
				s.Parts[name] += r.Value
			}
		}
		if a := g.config.Algorithm; !a.ComparesEpisodes() {
			s.Path = tokenPath(x, s.Parts, creditsTurns(g.config))
		}
		b.Samples = append(b.Samples, s)
	}
	return b, nil
}

// tokenPath is an episode token by token, its rewards placed as in the update.
func tokenPath(x *Sample, totals map[string]float64, perTurn bool) *components.Path {
	p := &components.Path{Mask: x.Mask, Rewards: tokenRewards(x.Episode, perTurn), Parts: map[string][]float64{}, Values: widen(x.Values), TurnEnds: turnEnds(x.Episode)}
	for name, rewards := range x.Components {
		part := *x.Episode
		part.Score, part.Rewards = totals[name], rewards
		p.Parts[name] = tokenRewards(&part, perTurn)
	}
	return p
}

// own reports whether a sample's old log-probs are the policy's own: those that given episodes bring may be another's.
func (g *componentGradients) own(x *Sample) bool {
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
		full := components.FullBytes(parts, experiment.Parameters(g.actor.model.Config))
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
