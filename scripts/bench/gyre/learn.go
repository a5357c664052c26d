package gyre

import (
	"math"
	"slices"
	"time"

	"gyre/scripts/bench/work"
	"gyre/scripts/bench/worker"
	"gyre/torch"
)

func (s *server) logprobs(t work.Task) (worker.Figures, error) {
	begin := time.Now()
	_, err := s.loaded.Logprobs(torch.Pack(t.Sequences, nil), 1)
	return worker.Figures{Seconds: time.Since(begin).Seconds()}, err
}

// update is one step of a clipped policy loss over the task's sequences. Old log-probs and advantages are made up: they
// cost nothing and change no amount of work.
func (s *server) update(t work.Task) (worker.Figures, error) {
	if s.optimizer == nil {
		var err error
		adamw := torch.AdamW{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.01}
		if s.gradients, err = torch.NewGradients(s.loaded); err != nil {
			return worker.Figures{}, err
		}
		s.holds(s.gradients)
		if s.optimizer, err = torch.NewOptimizer(s.loaded, adamw); err != nil {
			return worker.Figures{}, err
		}
		s.holds(s.optimizer)
	}
	trained := 0
	for _, ids := range t.Sequences {
		trained += len(ids) - max(t.Context, 1)
	}
	// Unrelated sequences go two at a time: the gradient is the same and activations take less memory. A group is one,
	// for its prompt.
	micro := [][][]int32{t.Sequences}
	if t.Context == 0 {
		micro = slices.Collect(slices.Chunk(t.Sequences, 2))
	}
	g, clipped := s.gradients, torch.PolicyLoss{Task: torch.NewLoss("ppo", map[string]float64{"clip_dual": 0}),
		Temperature: 1}

	begin := time.Now()
	if err := g.Zero(); err != nil {
		return worker.Figures{}, err
	}
	for _, sequences := range micro {
		batch, in := s.trainingBatch(sequences, t.Context, trained)
		if _, err := s.loaded.PolicyBackward(batch, in, clipped, torch.Terms(g, g, g)); err != nil {
			return worker.Figures{}, err
		}
	}
	passes := time.Since(begin)
	_, err := s.optimizer.Step(g, 1e-7, 1)
	total := time.Since(begin)
	return worker.Figures{Seconds: total.Seconds(), Parts: map[string]float64{
		"passes": passes.Seconds(), "optimizer": (total - passes).Seconds()}}, err
}

// trainingBatch packs sequences with made-up columns: the cost depends on no value. All tokens after the context are
// trained on, each with the weight of one in all.
func (s *server) trainingBatch(sequences [][]int32, context, all int) (torch.Batch, torch.PolicyInputs) {
	masks := make([][]bool, len(sequences))
	for i, ids := range sequences {
		masks[i] = make([]bool, len(ids))
		for j := max(context, 1); j < len(ids); j++ {
			masks[i][j] = true
		}
	}
	batch := torch.Pack(sequences, masks)
	n := len(batch.IDs)
	in := torch.PolicyInputs{OldLogprobs: make([]float32, n), Advantages: make([]float32, n),
		Weights: make([]float32, n)}
	for i, on := range batch.Mask {
		in.OldLogprobs[i] = float32(-math.Log(float64(s.loaded.Config.VocabSize)))
		in.Advantages[i] = float32(i%3) - 1
		in.Weights[i] = float32(on) / float32(all)
	}
	return batch, in
}
