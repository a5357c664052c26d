package torch

/*
#include "gyre.h"
*/
import "C"

import (
	"fmt"
	"reflect"
	"slices"
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

// Family names the architecture of a decoder.
type Family int32

// The families that Gyre reads. What they compute is in ModelConfig: nothing but reading and writing a checkpoint
// depends on the name.
const (
	Llama Family = iota
	Qwen2
	Qwen3
	Mistral
	Ministral
	SmolLM3
	Granite
	Olmo2
	Olmo3
	Phi3
	Glm4
	Glm
	Gemma2
	Gemma3
	Qwen3Moe
	Olmoe
	Mixtral
	GraniteMoe
	GraniteMoeShared
	GraniteMoeHybrid
)

// RopeScaling is the rule that stretches the rotary embedding's wavelengths.
type RopeScaling int32

// The supported rules: none, Llama 3's frequency-dependent one, and linear interpolation of positions.
const (
	RopePlain  RopeScaling = C.GYRE_ROPE_PLAIN
	RopeLlama3 RopeScaling = C.GYRE_ROPE_LLAMA3
	RopeLinear RopeScaling = C.GYRE_ROPE_LINEAR
)

// Head is what sits on the last hidden state.
type Head int32

// HeadLM gives logits over the vocabulary; HeadValue one scalar per position (the critic).
const (
	HeadLM    Head = C.GYRE_HEAD_LM
	HeadValue Head = C.GYRE_HEAD_VALUE
)

// names are those of an enumeration's values, in order.
type names []string

// of names a value; kind is the enumeration's, for values that it does not have.
func (n names) of(kind string, i int) string {
	if i < 0 || i >= len(n) || n[i] == "" {
		return fmt.Sprintf("%s(%d)", kind, i)
	}
	return n[i]
}

var (
	familyNames = names{Llama: "llama", Qwen2: "qwen2", Qwen3: "qwen3", Mistral: "mistral", Ministral: "ministral",
		SmolLM3: "smollm3", Granite: "granite", Olmo2: "olmo2", Olmo3: "olmo3", Phi3: "phi3", Glm4: "glm4", Glm: "glm",
		Gemma2: "gemma2", Gemma3: "gemma3_text", Qwen3Moe: "qwen3_moe", Olmoe: "olmoe", Mixtral: "mixtral",
		GraniteMoe: "granitemoe", GraniteMoeShared: "granitemoeshared",
		GraniteMoeHybrid: "granitemoehybrid"}
	ropeNames   = names{RopePlain: "default", RopeLlama3: "llama3", RopeLinear: "linear"}
	finishNames = names{FinishStop: "stop", FinishLength: "length", FinishAbort: "abort",
		FinishNotFinite: "not_finite"}
)

// String is the family's model_type in config.json: "llama".
func (f Family) String() string { return familyNames.of("Family", int(f)) }

// FamilyNames lists the names, in order.
func FamilyNames() []string { return slices.Clone(familyNames) }

// ParseFamily is the inverse of [Family.String]; ok is false for another name.
func ParseFamily(name string) (f Family, ok bool) {
	i := slices.Index(familyNames, name)
	return Family(i), i >= 0
}

// String is the rule's rope_type in config.json: "default".
func (r RopeScaling) String() string { return ropeNames.of("RopeScaling", int(r)) }

// ParseRopeScaling is the inverse of [RopeScaling.String]; ok is false for another name.
func ParseRopeScaling(name string) (r RopeScaling, ok bool) {
	i := slices.Index(ropeNames, name)
	return RopeScaling(i), i >= 0
}

// ModelConfig is the shape of a decoder, named after the keys of config.json, and where it computes. Its fields before
// Placement are those of gyre_model_config (see mirrors).
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

	Shape Shape // what a Llama does not have

	LoRA LoRA // of an adapter: see NewAdapter

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

// Rope is a rotary embedding by numbers: Theta's frequencies divided by Divisors, cosines and sines times Magnitude.
// Zeros stand for 1.
type Rope struct {
	Theta, Magnitude float64
	Divisors         [MaxPairs]float64
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

// mirrors are the structs that gyre.h and this package both declare, field by field, so that nothing converts them. A
// field that gyre.h gets is added here in the same place, under its name in Go's spelling; a test compares names, types
// and offsets.
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
