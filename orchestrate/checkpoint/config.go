package checkpoint

import (
	"fmt"

	"gyre/orchestrate/checkpoint/hf"
	"gyre/orchestrate/checkpoint/tensors"
	"gyre/torch"
)

// Config is a model directory's config.json, and the model it describes.
type Config struct {
	hf.Config
	Model torch.ModelConfig // with the head the directory was saved with
}

// ReadConfig reads dir/config.json in either spelling.
func ReadConfig(dir string) (Config, error) {
	c, err := hf.ReadConfig(dir)
	if err != nil {
		return Config{}, err
	}
	head := torch.HeadLM
	if c.Value {
		head = torch.HeadValue
	}
	return Config{Config: c, Model: modelConfig(c, head)}, nil
}

var families = map[hf.Family]torch.Family{hf.Llama: torch.Llama, hf.Qwen2: torch.Qwen2, hf.Qwen3: torch.Qwen3}

var ropes = map[string]torch.RopeScaling{hf.RopeDefault: torch.RopePlain, hf.RopeLinear: torch.RopeLinear, hf.RopeLlama3: torch.RopeLlama3}

func modelConfig(c hf.Config, head torch.Head) torch.ModelConfig {
	return torch.ModelConfig{Family: families[c.Family], Head: head,
		VocabSize: c.VocabSize, HiddenSize: c.HiddenSize, IntermediateSize: c.IntermediateSize, NumLayers: c.NumLayers,
		NumHeads: c.NumHeads, NumKVHeads: c.NumKVHeads, HeadDim: c.HeadDim, MaxPositions: c.MaxPositions,
		RMSNormEps: c.RMSNormEps, RopeTheta: c.Rope.Theta, RopeScaling: ropes[c.Rope.Type], RopeFactor: c.Rope.Factor,
		RopeLowFreqFactor: c.Rope.LowFreqFactor, RopeHighFreqFactor: c.Rope.HighFreqFactor,
		RopeOriginalMaxPositions: c.Rope.OriginalMaxPositions,
		QKVBias:                  c.QKVBias, OutBias: c.OutBias, MLPBias: c.MLPBias, QKNorm: c.QKNorm,
		// A value model has no head to tie.
		TieEmbeddings: c.Tie && head == torch.HeadLM}
}

// describe is the inverse of modelConfig; token ids are left empty.
func describe(m torch.ModelConfig) (hf.Config, error) {
	c := hf.Config{VocabSize: m.VocabSize, HiddenSize: m.HiddenSize, IntermediateSize: m.IntermediateSize, NumLayers: m.NumLayers,
		NumHeads: m.NumHeads, NumKVHeads: m.NumKVHeads, HeadDim: m.HeadDim, MaxPositions: m.MaxPositions, RMSNormEps: m.RMSNormEps,
		Rope: hf.Rope{Theta: m.RopeTheta, Factor: m.RopeFactor, LowFreqFactor: m.RopeLowFreqFactor, HighFreqFactor: m.RopeHighFreqFactor,
			OriginalMaxPositions: m.RopeOriginalMaxPositions},
		QKVBias: m.QKVBias, OutBias: m.OutBias, MLPBias: m.MLPBias, QKNorm: m.QKNorm, Tie: m.TieEmbeddings, Value: m.Head == torch.HeadValue}
	for family, value := range families {
		if value == m.Family {
			c.Family = family
		}
	}
	for name, value := range ropes {
		if value == m.RopeScaling {
			c.Rope.Type = name
		}
	}
	if c.Family == "" || c.Rope.Type == "" {
		return c, fmt.Errorf("checkpoint: a model of family %d with rope scaling %d has no config.json", m.Family, m.RopeScaling)
	}
	return c, nil
}

func headOf(h torch.Head) hf.Head {
	if h == torch.HeadValue {
		return hf.ValueModel
	}
	return hf.LanguageModel
}

var dtypes = map[tensors.DType]torch.DType{tensors.F32: torch.F32, tensors.F16: torch.F16, tensors.BF16: torch.BF16, tensors.F64: torch.F64}

func fileDType(d torch.DType) (tensors.DType, error) {
	for file, memory := range dtypes {
		if memory == d {
			return file, nil
		}
	}
	return 0, fmt.Errorf("checkpoint: weights cannot be stored as %v: expected float32, bfloat16, float16 or float64", d)
}
