package session

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"gyre/orchestrate/loop/generation"
	"gyre/orchestrate/model/checkpoint"
	"gyre/torch"
)

// ProveExact compares sampler and trainer on a policy directory, or on a small random policy when dir is empty; see
// [LogprobGap].
func ProveExact(dir string, on torch.Placement) (float64, error) {
	model, err := provingModel(dir, on)
	if err != nil {
		return 0, err
	}
	defer model.Close()
	engine, err := torch.NewEngine(model, torch.EngineConfig{MaxSequences: 8, MaxLength: 128, MaxBatchTokens: 64,
		PrefixCache: true})
	if err != nil {
		return 0, err
	}
	defer engine.Close()
	return LogprobGap(context.Background(), model, engine, 1)
}

func provingModel(dir string, on torch.Placement) (*torch.Model, error) {
	if dir != "" {
		return checkpoint.LoadModel(dir, torch.HeadLM, on)
	}
	model, err := torch.NewModel(torch.ModelConfig{
		Family: torch.Qwen2, VocabSize: 501, HiddenSize: 120, IntermediateSize: 264, NumLayers: 3, NumHeads: 6,
		NumKVHeads: 2, HeadDim: 20,
		MaxPositions: 256, RMSNormEps: 1e-6, RopeTheta: 1e4, QKVBias: true, Placement: on,
	})
	if err != nil {
		return nil, err
	}
	parameters, err := model.Parameters()
	if err != nil {
		model.Close()
		return nil, err
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, p := range parameters {
		values, e := p.Tensor.Float32s()
		for i := range values {
			values[i] = float32(random.NormFloat64() * 0.1)
		}
		err = errors.Join(err, e, p.Tensor.SetFloat32s(values), p.Tensor.Close())
	}
	if err = errors.Join(err, model.Touch()); err != nil {
		model.Close()
		return nil, err
	}
	return model, nil
}

// LogprobGap is the self-test of a machine: it samples a few sequences in a mixed batch and logprobs them with the
// training forward; it returns the largest difference of log-probs. On a CPU whose kernels are row-invariant it is
// exactly 0, and the old-log-prob pass can be left out. Ranks that sample together call it together: the first
// compares, the others make the same passes.
func LogprobGap(ctx context.Context, model *torch.Model, engine generation.Engine,
	temperature float64) (float64, error) {
	vocab := int32(model.Config.VocabSize)
	prompts := make([][]int32, 5)
	for i := range prompts {
		for j := range 1 + 9*i {
			prompts[i] = append(prompts[i], int32(31*i+17*j+j*j)%vocab)
		}
	}
	driver := generation.New(engine, nil)
	outputs := map[uint64]torch.Output{}
	err := engine.TensorParallel(ctx, func() error {
		for i, prompt := range prompts {
			err := driver.Submit(generation.Request{Request: torch.Request{ID: uint64(i), Prompt: prompt,
				Sampling: torch.Sampling{
					Temperature: temperature, TopP: 1, MaxTokens: 4 + 7*i, Seed: uint64(i), IgnoreEOS: true,
				}}})
			if err != nil {
				return err
			}
		}
		return driver.Run(ctx, func(o torch.Output) error { outputs[o.ID] = o; return nil })
	})
	if err != nil {
		return 0, err
	}
	gap := 0.0
	for i, prompt := range prompts {
		out := outputs[uint64(i)]
		ids := append(append([]int32(nil), prompt...), out.Tokens...)
		logprobs, err := model.Logprobs(torch.Pack([][]int32{ids}, nil), temperature)
		if err != nil {
			return 0, err
		}
		for j, sampled := range out.Logprobs {
			d := math.Abs(float64(sampled) - float64(logprobs[len(prompt)+j]))
			if math.IsNaN(d) {
				return 0, fmt.Errorf("the policy's log-probs are not finite: are the weights?")
			}
			gap = math.Max(gap, d)
		}
	}
	return gap, nil
}
