package torch

/*
#include "gyre_engine.h"
*/
import "C"

import (
	"fmt"
	"reflect"
	"runtime"
	"unsafe"
)

// DType is the element type of a tensor or of data copied into or out of one.
type DType int

// The element types of gyre.h. F16 and BF16 data are passed as their little-endian 16-bit patterns.
const (
	F32  DType = C.GYRE_F32
	F16  DType = C.GYRE_F16
	BF16 DType = C.GYRE_BF16
	F64  DType = C.GYRE_F64
)

var dtypes = map[DType]struct {
	name string
	size int
}{F32: {"float32", 4}, F16: {"float16", 2}, BF16: {"bfloat16", 2}, F64: {"float64", 8}}

// Size is the number of bytes of one element.
func (d DType) Size() int { return dtypes[d].size }

// String is PyTorch's name of the type: "float32".
func (d DType) String() string {
	if t, ok := dtypes[d]; ok {
		return t.name
	}
	return fmt.Sprintf("DType(%d)", int(d))
}

// Family is the architecture of a decoder: its model_type in config.json.
type Family string

// The families that Gyre reads. What they compute is in ModelConfig: nothing but reading and writing a checkpoint
// depends on the name.
const (
	Llama            Family = "llama"
	Qwen2            Family = "qwen2"
	Qwen3            Family = "qwen3"
	Mistral          Family = "mistral"
	Ministral        Family = "ministral"
	SmolLM3          Family = "smollm3"
	Granite          Family = "granite"
	Olmo2            Family = "olmo2"
	Olmo3            Family = "olmo3"
	Phi3             Family = "phi3"
	Glm4             Family = "glm4"
	Glm              Family = "glm"
	Gemma2           Family = "gemma2"
	Gemma3           Family = "gemma3_text"
	Qwen3Moe         Family = "qwen3_moe"
	Olmoe            Family = "olmoe"
	Mixtral          Family = "mixtral"
	GraniteMoe       Family = "granitemoe"
	GraniteMoeShared Family = "granitemoeshared"
	GraniteMoeHybrid Family = "granitemoehybrid"
)

// Head is what sits on the last hidden state.
type Head int32

// HeadLM gives logits over the vocabulary; HeadValue one scalar per position (the critic).
const (
	HeadLM    Head = C.GYRE_HEAD_LM
	HeadValue Head = C.GYRE_HEAD_VALUE
)

// ModelConfig is the shape of a decoder, named after the keys of config.json, and where it computes. Its fields before
// Family are those of gyre_model_config (see mirrors).
type ModelConfig struct {
	Head Head

	VocabSize, HiddenSize, IntermediateSize, NumLayers int64
	NumHeads, NumKVHeads, HeadDim, MaxPositions        int64

	RMSNormEps, RopeTheta float64

	QKVBias, OutBias, MLPBias, QKNorm, TieEmbeddings bool

	Shape Shape // what a Llama does not have

	LoRA LoRA // of an adapter: see NewAdapter

	Family Family
	Placement
}

// Activation is the function of a gated MLP's gate.
type Activation int32

// SiLU makes a SwiGLU, GELUTanh a GeGLU (Shazeer 2020).
const (
	SiLU     Activation = C.GYRE_SILU
	GELUTanh Activation = C.GYRE_GELU_TANH
)

// LayerKind says what a layer is like.
type LayerKind uint8

// The bits of a LayerKind: it sees the last Shape.Window positions; its heads do not rotate; they rotate by
// Shape.LocalRope; an MLP is in the place of experts.
const (
	WindowLayer LayerKind = C.GYRE_LAYER_WINDOW
	NoPELayer   LayerKind = C.GYRE_LAYER_NOPE
	LocalLayer  LayerKind = C.GYRE_LAYER_LOCAL
	DenseLayer  LayerKind = C.GYRE_LAYER_DENSE
)

// MaxLayers bounds the layers that may differ from each other, MaxPairs the rotations that may be scaled one by one.
const (
	MaxLayers = C.GYRE_MAX_LAYERS
	MaxPairs  = C.GYRE_MAX_PAIRS
)

// Rope is how a rotary embedding is scaled: the frequencies of its theta are divided by Divisors, cosines and sines
// multiplied by Magnitude. Zeros stand for 1.
type Rope struct {
	Magnitude float64
	Divisors  [MaxPairs]float64
}

// Shape is what a decoder is made of beyond its sizes; zeros are a Llama's. See gyre_shape.
type Shape struct {
	NoInputNorms, OutputNorms, UnitNorms, WideQKNorm bool
	RopeInterleaved                                  bool

	Activation                                Activation
	RotaryDims                                int32
	QueryScale, ScoreCap, LogitCap            float64
	LogitScale, EmbeddingScale, ResidualScale float64
	Window                                    int64

	Experts, ChosenExperts, ExpertSize, SharedSize int64
	NormalizedRouting                              bool

	Layers          [MaxLayers]LayerKind
	LocalTheta      float64
	Rope, LocalRope Rope
}

// Mixes reports whether a layer has experts in the place of an MLP.
func (c ModelConfig) Mixes(layer int64) bool {
	return c.Shape.Experts > 0 && (layer >= MaxLayers || c.Shape.Layers[layer]&DenseLayer == 0)
}

// Mixtures counts the layers that have experts.
func (c ModelConfig) Mixtures() (count int64) {
	for layer := range c.NumLayers {
		if c.Mixes(layer) {
			count++
		}
	}
	return count
}

// MLPWidth is the width of a layer's MLP, which in a layer with experts is beside them; 0: there is none.
func (c ModelConfig) MLPWidth(layer int64) int64 {
	if c.Mixes(layer) {
		return c.Shape.SharedSize
	}
	return c.IntermediateSize
}

func (c ModelConfig) c() *C.gyre_model_config {
	config := new(C.gyre_model_config)
	shape := unsafe.Offsetof(c.LoRA) + unsafe.Sizeof(c.LoRA)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(config)), shape), unsafe.Slice((*byte)(unsafe.Pointer(&c)), shape))
	config.compute, config.frozen, config.int8 = computes[c.Compute], C.bool(c.Frozen), C.bool(c.Int8)
	for i := range min(len(c.Device), len(config.device)-1) {
		config.device[i] = C.char(c.Device[i])
	}
	return config
}

// as is a struct of Go's as the struct of gyre.h that lies in memory in the same way, or with which it begins. It is
// for the pairs in mirrors alone.
func as[C, G any](v *G) *C { return (*C)(unsafe.Pointer(v)) }

// view is the C view of a slice of numbers, NULL when it is empty; pinned is one that lies in a struct.
func view[C, G any](s []G) *C {
	if len(s) == 0 {
		return nil
	}
	return (*C)(unsafe.Pointer(&s[0]))
}

func pinned[C, G any](pin *runtime.Pinner, s []G) *C {
	if len(s) > 0 {
		pin.Pin(&s[0])
	}
	return view[C](s)
}

// mirrors are the structs that gyre.h and this package both declare, field by field, so that nothing converts them. A
// field that gyre.h gets is added here in the same place, under its name in Go's spelling; mirror_test.go compares
// names, types and offsets.
var mirrors = map[reflect.Type]reflect.Type{
	reflect.TypeFor[ModelConfig]():  reflect.TypeFor[C.gyre_model_config](),
	reflect.TypeFor[Shape]():        reflect.TypeFor[C.gyre_shape](),
	reflect.TypeFor[Rope]():         reflect.TypeFor[C.gyre_rope](),
	reflect.TypeFor[LoRA]():         reflect.TypeFor[C.gyre_lora](),
	reflect.TypeFor[Dropout]():      reflect.TypeFor[C.gyre_dropout](),
	reflect.TypeFor[Loss]():         reflect.TypeFor[C.gyre_task_loss](),
	reflect.TypeFor[PolicyLoss]():   reflect.TypeFor[C.gyre_policy_loss](),
	reflect.TypeFor[PolicyStats]():  reflect.TypeFor[C.gyre_policy_stats](),
	reflect.TypeFor[TermStats]():    reflect.TypeFor[C.gyre_term_stats](),
	reflect.TypeFor[ValueStats]():   reflect.TypeFor[C.gyre_value_stats](),
	reflect.TypeFor[AdamW]():        reflect.TypeFor[C.gyre_adamw_config](),
	reflect.TypeFor[EngineConfig](): reflect.TypeFor[C.gyre_engine_config](),
	reflect.TypeFor[Sampling]():     reflect.TypeFor[C.gyre_sampling](),
	reflect.TypeFor[Alternative]():  reflect.TypeFor[C.gyre_alternative](),
	reflect.TypeFor[Work]():         reflect.TypeFor[C.gyre_work](),
	reflect.TypeFor[EnginePhase]():  reflect.TypeFor[C.gyre_engine_phase](),
	reflect.TypeFor[EngineStats]():  reflect.TypeFor[C.gyre_engine_stats_t](),
}

// converted are the other structs of gyre.h and what this package makes of them, or them of; mirror_test.go compares
// their fields' names.
var converted = map[reflect.Type]reflect.Type{
	reflect.TypeFor[Batch]():          reflect.TypeFor[C.gyre_batch](),
	reflect.TypeFor[Support]():        reflect.TypeFor[C.gyre_support](),
	reflect.TypeFor[PolicyInputs]():   reflect.TypeFor[C.gyre_policy_inputs](),
	reflect.TypeFor[Term]():           reflect.TypeFor[C.gyre_term](),
	reflect.TypeFor[LossInfo]():       reflect.TypeFor[C.gyre_loss](),
	reflect.TypeFor[LossConstant]():   reflect.TypeFor[C.gyre_loss_constant](),
	reflect.TypeFor[Request]():        reflect.TypeFor[C.gyre_request](),
	reflect.TypeFor[Output]():         reflect.TypeFor[C.gyre_output](),
	reflect.TypeFor[ShardConfig]():    reflect.TypeFor[C.gyre_sharding](),
	reflect.TypeFor[Shard]():          reflect.TypeFor[C.gyre_held](),
	reflect.TypeFor[GroupConfig]():    reflect.TypeFor[C.gyre_group_config](),
	reflect.TypeFor[Flow]():           reflect.TypeFor[C.gyre_traffic](),
	reflect.TypeFor[InstructionSet](): reflect.TypeFor[C.gyre_isa](),
}
