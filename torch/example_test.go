package torch_test

import (
	"fmt"

	"gyre/torch"
)

func ExamplePack() {
	b := torch.Pack([][]int32{{5, 6, 7}, {8, 9}}, nil)
	fmt.Println(b.Offsets, b.IDs, b.Mask)
	// Output: [0 3 5] [5 6 7 8 9] [0 1 1 0 1]
}

// A model with zero weights gives every token the same probability.
func ExampleModel_Logprobs() {
	model, err := torch.NewModel(torch.ModelConfig{Family: torch.Llama, VocabSize: 4, HiddenSize: 8,
		IntermediateSize: 8, NumLayers: 1,
		NumHeads: 2, NumKVHeads: 2, HeadDim: 4, MaxPositions: 16, RMSNormEps: 1e-5, RopeTheta: 10000})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer model.Close()
	logprobs, err := model.Logprobs(torch.Pack([][]int32{{0, 3, 1}}, nil), 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%.4f\n", logprobs)
	// Output: [0.0000 -1.3863 -1.3863]
}
