package trainer

import (
	"context"
	"fmt"
	"maps"

	"gyre/envs"
	"gyre/orchestrate/loop/collapse"
	"gyre/orchestrate/loop/episode"
)

// collapseDue says whether a step measures what thoughts owe to their prompts.
func (t *Trainer) collapseDue(step int) bool {
	every := t.config.Collapse.Every
	return every > 0 && t.sampler != nil && (step == 1 || step%every == 0)
}

// measureCollapse adds the collapse diagnostics of a batch, before filtering, under the policy that played it.
func (t *Trainer) measureCollapse(ctx context.Context, step int, episodes []*episode.Episode, metrics map[string]float64) error {
	decode := func(ids []int32) string { return t.sampler.Tokenizer.Decode(ids, false) }
	rng := envs.Rand("collapse", int64(t.config.Run.Seed), int64(step))
	score := func(sequences []collapse.Sequence) ([]float64, error) { return t.scoreThoughts(ctx, sequences) }
	numbers, err := t.state.Collapse.Measure(episodes, decode, score, t.config.Collapse, rng)
	if err != nil {
		return fmt.Errorf("collapse diagnostics: %w", err)
	}
	maps.Copy(metrics, numbers)
	return nil
}

// scoreThoughts sums the log-probs of each sequence's thought. Sequences with one prompt share its rows.
func (e *equipment) scoreThoughts(ctx context.Context, sequences []collapse.Sequence) ([]float64, error) {
	samples, logprobs := make([]*Sample, len(sequences)), make([][]float32, len(sequences))
	for i, s := range sequences {
		mask := make([]bool, len(s.IDs))
		for k := s.From; k < len(mask); k++ {
			mask[k] = true
		}
		samples[i] = &Sample{Episode: &episode.Episode{IDs: s.IDs, Mask: mask}}
	}
	err := e.logprobs(ctx, e.actor.model, samples, func(i int) *[]float32 { return &logprobs[i] })
	sums := make([]float64, len(sequences))
	for i, list := range logprobs {
		for _, l := range list {
			sums[i] += float64(l)
		}
	}
	return sums, err
}
