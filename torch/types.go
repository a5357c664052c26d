package torch

/*
#include "gyre.h"
*/
import "C"

import "fmt"

// DType is the element type of a tensor or of data copied into or out of one.
type DType int

// The element types of gyre.h. F16 and BF16 data are passed as their little-endian 16-bit patterns.
const (
	F32  DType = C.GYRE_F32
	F16  DType = C.GYRE_F16
	BF16 DType = C.GYRE_BF16
	F64  DType = C.GYRE_F64
	I64  DType = C.GYRE_I64
	I32  DType = C.GYRE_I32
)

var dtypes = map[DType]struct {
	name string
	size int
}{F32: {"float32", 4}, F16: {"float16", 2}, BF16: {"bfloat16", 2}, F64: {"float64", 8}, I64: {"int64", 8}, I32: {"int32", 4}}

// Size is the number of bytes of one element.
func (d DType) Size() int { return dtypes[d].size }

// String is PyTorch's name of the type: "float32".
func (d DType) String() string {
	if t, ok := dtypes[d]; ok {
		return t.name
	}
	return fmt.Sprintf("DType(%d)", int(d))
}

// Family is the architecture of a decoder.
type Family int

// The supported decoder families (Hugging Face's LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM).
const (
	Llama Family = C.GYRE_LLAMA
	Qwen2 Family = C.GYRE_QWEN2
	Qwen3 Family = C.GYRE_QWEN3
)

// RopeScaling is the rule that stretches the rotary embedding's wavelengths.
type RopeScaling int

// The supported rules: none, Llama 3's frequency-dependent one, and linear interpolation of positions.
const (
	RopePlain  RopeScaling = C.GYRE_ROPE_PLAIN
	RopeLlama3 RopeScaling = C.GYRE_ROPE_LLAMA3
	RopeLinear RopeScaling = C.GYRE_ROPE_LINEAR
)

// Head is what sits on the last hidden state.
type Head int

// HeadLM gives logits over the vocabulary; HeadValue one scalar per position (the critic).
const (
	HeadLM    Head = C.GYRE_HEAD_LM
	HeadValue Head = C.GYRE_HEAD_VALUE
)

// ModelConfig is the shape of a decoder, named after the keys of config.json.
type ModelConfig struct {
	Family Family
	Head   Head

	VocabSize, HiddenSize, IntermediateSize, NumLayers int64
	NumHeads, NumKVHeads, HeadDim, MaxPositions        int64

	RMSNormEps, RopeTheta                             float64
	RopeScaling                                       RopeScaling
	RopeFactor, RopeLowFreqFactor, RopeHighFreqFactor float64
	RopeOriginalMaxPositions                          int64

	QKVBias, OutBias, MLPBias, QKNorm, TieEmbeddings bool

	Placement
}

func (c ModelConfig) c() C.gyre_model_config {
	config := C.gyre_model_config{
		family: C.int32_t(c.Family), head: C.int32_t(c.Head),
		vocab_size: C.int64_t(c.VocabSize), hidden_size: C.int64_t(c.HiddenSize),
		intermediate_size: C.int64_t(c.IntermediateSize), num_layers: C.int64_t(c.NumLayers),
		num_heads: C.int64_t(c.NumHeads), num_kv_heads: C.int64_t(c.NumKVHeads), head_dim: C.int64_t(c.HeadDim),
		max_positions: C.int64_t(c.MaxPositions),
		rms_norm_eps:  C.double(c.RMSNormEps), rope_theta: C.double(c.RopeTheta),
		rope_scaling: C.int32_t(c.RopeScaling), rope_factor: C.double(c.RopeFactor),
		rope_low_freq_factor: C.double(c.RopeLowFreqFactor), rope_high_freq_factor: C.double(c.RopeHighFreqFactor),
		rope_original_max_positions: C.int64_t(c.RopeOriginalMaxPositions),
		qkv_bias:                    flag(c.QKVBias), out_bias: flag(c.OutBias), mlp_bias: flag(c.MLPBias),
		qk_norm: flag(c.QKNorm), tie_embeddings: flag(c.TieEmbeddings),
	}
	c.Placement.c(&config)
	return config
}

func flag(b bool) C.int32_t {
	if b {
		return 1
	}
	return 0
}
