package trainer

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/components"
	"gyre/orchestrate/config"
	"gyre/orchestrate/episode"
	"gyre/torch"
)

// planComponents predicts the memory of measuring the parts of a step, if the filter keeps every episode. How many parts there are is known where
// they are named; otherwise three are counted.
func planComponents(c *config.Config, parameters int64) (what string, bytes int64) {
	k, parts, episodes := c.Components, len(orderedParts(c)), 0
	if parts == 0 {
		parts = 3
	}
	for _, e := range c.Envs {
		episodes += e.Groups * e.GroupSize
	}
	if k.Mode == components.Exact {
		parts++ // what the score holds beside them
	}
	buffers := components.Buffers(parts, c.Algorithm.EntropyCoef != 0, c.Algorithm.KLCoef != 0 && c.Algorithm.KLIn == "loss", k.Buckets)
	bytes = components.Bytes(parameters, buffers, episodes, k.Permutations)
	if full := components.FullBytes(parts, parameters); k.Save == "full" && full <= int64(k.SaveMiB)<<20 {
		bytes += full
	}
	return fmt.Sprintf("gradients of the reward's parts: %d buffers, %d parts", buffers, parts), bytes
}

// componentsDue reports whether the gradients of the reward's parts are measured at this step: at steps 1, 1 + every, 1 + 2·every, …
func (t *Trainer) componentsDue(step int) bool {
	c := t.config.Components
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

// orderedParts are the parts to measure, in the order of reports.
func orderedParts(c *config.Config) []string {
	var rewarded []string
	for _, r := range c.Rewards {
		rewarded = append(rewarded, r.Name)
	}
	if len(c.Components.Names) > 0 {
		return c.Components.Names
	}
	return rewarded
}

// componentFolder is where the gradients of the parts are kept.
func componentFolder(c *config.Config) string {
	data := c.Components.Data
	if data == "" && len(c.Envs) > 0 {
		data = strings.ReplaceAll(c.Envs[0].Tag, "/", "_")
	}
	return "gradient_analysis_" + data
}

// measureComponents measures the gradients of the parts of a prepared batch's reward, at the present weights, and leaves everything as it was.
// Files go into dir, unless it is "". They count the updates before the step: the first step's have the number 0.
func (t *Trainer) measureComponents(ctx context.Context, step int, samples []*Sample, dir string, values map[string]any) (string, error) {
	c := t.config.Components
	c.Names = orderedParts(t.config)
	batch, err := t.componentBatch(samples)
	if err != nil {
		return "", err
	}
	advantages, err := components.Estimate(batch.Samples, c, partWeights(t.config), t.config.Algorithm)
	if err != nil {
		return "", err
	}
	if advantages.Note != "" && !t.notedParts {
		t.notedParts = true
		t.log.Warnf("components: %s", advantages.Note)
	}
	options := components.Options{Permutations: c.Permutations, Confidence: t.config.Analysis.Confidence, Seed: t.config.Run.Seed, Step: uint64(step)}
	if c.Buckets && !slices.ContainsFunc(samples, func(x *Sample) bool { return math.IsNaN(x.Spread) }) {
		if options.Buckets, err = t.buckets(samples); err != nil {
			return "", err
		}
	}
	if dir != "" && c.Enabled && c.Save != "none" {
		options.Keep = func(names []string, gradients []*torch.Gradients, parameters []torch.Parameter) error {
			return t.keepComponents(step, dir, len(advantages.Names), names, gradients, parameters)
		}
	}
	report, err := components.Measure(ctx, t.actor.model, batch, advantages, options)
	if err != nil {
		return "", err
	}
	maps.Copy(values, report.Values())
	if dir == "" {
		return report.Console(), nil
	}
	path := filepath.Join(dir, fmt.Sprintf("cosines_step_%d.csv", step-1))
	return report.Console(), atomicfile.Write(path, func(w io.Writer) error { return report.WriteCSV(w, c.Save != "none") })
}

// componentBatch gives the measurement its backward passes: of single episodes at advantage 1, as of the policy that sampled them, and of the
// loss's other terms as in the update.
func (t *Trainer) componentBatch(samples []*Sample) (components.Batch, error) {
	weights, err := lossWeights(samples, all(len(samples)), t.config.Actor.LossAggregation)
	if err != nil {
		return components.Batch{}, err
	}
	loss := t.policyLoss()
	b := components.Batch{
		Entropy: loss.EntropyCoef != 0, KL: loss.KL != torch.KLNone,
		Unit: func(i int, into *torch.Gradients) error {
			_, err := t.actor.model.PolicyBackward(pack(samples, []int{i}), torch.PolicyInputs{Weights: weights[i]},
				torch.PolicyLoss{Objective: torch.ObjectiveNLL, Temperature: t.temperature()}, torch.Terms(into, nil, nil))
			return err
		},
		Regularise: func(chosen []int, entropy, kl *torch.Gradients) error {
			for _, micro := range microBatches(samples, chosen, t.config.Actor.MicroBatchTokens) {
				if _, err := t.policyBackward(samples, micro, weights, loss, torch.Terms(nil, entropy, kl)); err != nil {
					return err
				}
			}
			return nil
		},
	}
	for _, x := range samples {
		s := components.Sample{Group: x.Group, Tokens: x.PolicyTokens(), Score: x.Score, Parts: map[string]float64{}}
		for name, rewards := range x.Components {
			for _, r := range rewards {
				s.Parts[name] += r.Value
			}
		}
		b.Samples = append(b.Samples, s)
	}
	return b, nil
}

// keepComponents starts writing the parts' gradients, in full if the configuration allows that much.
func (t *Trainer) keepComponents(step int, dir string, parts int, names []string, gradients []*torch.Gradients, parameters []torch.Parameter) error {
	c := t.config.Components
	if t.componentFiles == nil {
		full := components.FullBytes(parts, Parameters(t.actor.model.Config))
		t.componentFiles = &components.Saver{Dir: dir, Projection: c.Save == "projection" || full > int64(c.SaveMiB)<<20}
		if t.componentFiles.Projection && c.Save == "full" {
			t.log.Warnf("components: the gradients of a step take %d MiB, more than components.save_mib = %d: random projections are written instead", full>>20, c.SaveMiB)
		}
	}
	return t.componentFiles.Save(step-1, names[:parts], gradients, parameters)
}
