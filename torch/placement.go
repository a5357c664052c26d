package torch

/*
#include "gyre.h"
*/
import "C"

import (
	"fmt"
	"strings"
)

// Placement says what computes a model, and what for. The zero value is Gyre's own kernels on the CPU.
type Placement struct {
	Device  string // "cpu" or ""; "cuda" or "cuda:N", a GPU; "aten", what runs on GPUs, on the CPU
	Compute Compute
	Frozen  bool // for sampling and scoring alone: only what these read stays in memory ([Model.Freeze])
	Int8    bool // of a frozen model on the CPU: the blocks' matrices are held as codes of int8
	// Tokens of the longest sequence of a run, which rotary scalings that depend on it are settled by; 0: short ones.
	Longest int64
}

// Compute is the type of a model's arithmetic. Parameters, gradients and optimizer state are float32 in any case.
type Compute string

// ComputeAuto is a wish that [Placement.Settled] makes a type of. Unsettled, it is, like "", bfloat16 on a GPU and
// float32 elsewhere.
const (
	ComputeAuto Compute = "auto"
	ComputeF32  Compute = "float32"
	ComputeBF16 Compute = "bfloat16"
)

var computes = map[Compute]C.int32_t{
	"": C.GYRE_COMPUTE_AUTO, ComputeAuto: C.GYRE_COMPUTE_AUTO, ComputeF32: C.GYRE_COMPUTE_F32,
	ComputeBF16: C.GYRE_COMPUTE_BF16,
}

// Settled is the placement with the faster type in place of auto: bfloat16 on a GPU and on CPUs whose kernels multiply
// faster in it, float32 elsewhere. why is the reason, "" where the type was given.
func (p Placement) Settled() (settled Placement, why string, err error) {
	if p.Compute != ComputeAuto {
		return p, "", nil
	}
	p.Compute = ComputeF32
	switch {
	case strings.HasPrefix(p.Device, "cuda"):
		p.Compute, why = ComputeBF16, "GPUs multiply faster in it"
	case p.Device != "" && p.Device != "cpu":
		why = "what " + p.Device + " computes in on a CPU"
	default:
		set, err := InstructionSetInUse()
		if err != nil {
			return p, "", err
		}
		why = set.reason()
		if set.BF16IsFaster {
			p.Compute = ComputeBF16
		}
	}
	return p, why, nil
}

func (s InstructionSet) reason() string {
	if s.BF16IsFaster {
		return fmt.Sprintf("this processor's kernels (%s) multiply faster in it", s.Name)
	}
	return fmt.Sprintf("this processor's kernels (%s) multiply no faster in bfloat16", s.Name)
}

// Check says what is wrong with a placement, but not whether the GPU is there: making a model does.
func (p Placement) Check() error {
	if _, ok := computes[p.Compute]; !ok {
		return &Error{Kind: ErrInvalidArgument,
			Message: fmt.Sprintf("model dtype: got %q, expected auto, float32 or bfloat16", string(p.Compute))}
	}
	return nil
}

// Device tells where the model is and in which type it computes: "cpu, float32", "cuda:0 NVIDIA H200 (139 GiB),
// bfloat16".
func (m *Model) Device() (string, error) {
	var line [256]C.char
	err := m.with(func(h *C.gyre_model) code { return C.gyre_model_device(h, &line[0], C.size_t(len(line))) })
	return C.GoString(&line[0]), err
}

// CUDAInfo names the GPUs that this process may use, or begins with "none: " and says what to do about it.
func CUDAInfo() string {
	var line [1024]C.char
	if err := load(); err != nil {
		return "none: " + err.Error()
	}
	execute(func() { C.gyre_cuda_info(&line[0], C.size_t(len(line))) })
	return C.GoString(&line[0])
}
