package trainer

import (
	"context"
	"fmt"

	"gyre/envs"
	"gyre/orchestrate/loop/collapse"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/train"
)

// collapseObserver measures what thoughts owe to their prompts, before filtering, under the policy that played.
type collapseObserver struct {
	*session.Session
	meter *collapse.Meter
}

func (o *collapseObserver) Due(step int) bool {
	every := o.Config.Collapse.Every
	return every > 0 && o.Sampler != nil && (step == 1 || step%every == 0)
}

func (o *collapseObserver) Look(ctx context.Context, s *Step) error {
	decode := func(ids []int32) string { return o.Sampler.Tokenizer.Decode(ids, false) }
	rng := envs.Rand("collapse", int64(o.Config.Run.Seed), int64(s.Number))
	score := func(sequences []collapse.Sequence) ([]float64, error) { return o.scoreThoughts(ctx, sequences) }
	found, err := o.meter.Measure(s.Episodes, decode, score, o.Config.Collapse, rng)
	if err != nil {
		return fmt.Errorf("collapse diagnostics: %w", err)
	}
	s.Line.Add(found)
	return nil
}

// scoreThoughts sums the log-probs of each sequence's thought. Sequences with one prompt share its tokens.
func (o *collapseObserver) scoreThoughts(ctx context.Context, sequences []collapse.Sequence) ([]float64, error) {
	b := &train.Batch{}
	for _, s := range sequences {
		mask := make([]bool, len(s.IDs))
		for k := s.From; k < len(mask); k++ {
			mask[k] = true
		}
		b.Sequences = append(b.Sequences, train.Sequence{IDs: s.IDs, Mask: mask})
	}
	logprobs, err := o.Actor.Score(ctx, b, train.What{Temperature: session.Temperature(o.Config)})
	sums := make([]float64, len(sequences))
	for i, list := range logprobs {
		for _, l := range list {
			sums[i] += float64(l)
		}
	}
	return sums, err
}
