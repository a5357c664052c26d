package trainer

import (
	"fmt"
	"math"

	"gyre/torch"
)

// proveParity samples a few sequences in a mixed batch and scores them with the training forward; it returns the largest difference of
// log-probs. On a CPU whose kernels are row-invariant it is exactly 0, and the old-log-prob pass can be left out.
func proveParity(model *torch.Model, engine *torch.Engine, temperature float64) (float64, error) {
	vocab := int32(model.Config().VocabSize)
	prompts := make([][]int32, 5)
	for i := range prompts {
		for j := range 1 + 9*i {
			prompts[i] = append(prompts[i], int32(31*i+17*j+j*j)%vocab)
		}
	}
	for i, prompt := range prompts {
		err := engine.Submit(torch.Request{ID: uint64(i), Prompt: prompt, Sampling: torch.Sampling{
			Temperature: temperature, TopP: 1, MaxTokens: 4 + 7*i, Seed: uint64(i), IgnoreEOS: true,
		}})
		if err != nil {
			return 0, err
		}
	}
	outputs := map[uint64]torch.Output{}
	for len(outputs) < len(prompts) {
		if _, err := engine.Step(); err != nil {
			return 0, err
		}
		done, err := engine.Poll()
		if err != nil {
			return 0, err
		}
		for _, o := range done {
			outputs[o.ID] = o
		}
	}
	gap := 0.0
	for i, prompt := range prompts {
		out := outputs[uint64(i)]
		ids := append(append([]int32(nil), prompt...), out.Tokens...)
		scores, err := model.Score(torch.Pack([][]int32{ids}, nil), temperature, false)
		if err != nil {
			return 0, err
		}
		for j, sampled := range out.Logprobs {
			d := math.Abs(float64(sampled) - float64(scores.Logprobs[len(prompt)+j]))
			if math.IsNaN(d) {
				return 0, fmt.Errorf("the policy's log-probs are not finite: are the weights?")
			}
			gap = math.Max(gap, d)
		}
	}
	return gap, nil
}
