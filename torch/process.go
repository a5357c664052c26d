package torch

/*
#include "gyre.h"
*/
import "C"

import "slices"

// SetThreads sets the number of threads of all later calls, 1 to 1024. Results do not depend on it.
func SetThreads(n int) error {
	return invoke(func() code { return C.gyre_set_threads(C.int32_t(n)) })
}

// Threads is the number of threads in use, 0 where the library cannot be loaded.
func Threads() int {
	var n int
	if load() != nil {
		return 0
	}
	execute(func() { n = int(C.gyre_threads()) })
	return n
}

// BuildInfo is one line about the library: libtorch's version, the instruction set in use; or why it cannot be loaded.
func BuildInfo() string {
	if err := load(); err != nil {
		return err.Error()
	}
	var line [256]C.char
	execute(func() { C.gyre_build_info(&line[0], C.size_t(len(line))) })
	return C.GoString(&line[0])
}

// PeakRSS is the peak resident memory of this process in bytes, 0 where the library cannot be loaded.
func PeakRSS() int64 {
	if load() != nil {
		return 0
	}
	return int64(C.gyre_peak_rss())
}

// Measure measures this machine for less than a second: read bandwidth in bytes/s and the rate of Gyre's linear kernel
// in FLOP/s, in the type of a CPU model's arithmetic.
func Measure(in Compute) (bandwidth, flops float64, err error) {
	err = invoke(func() code {
		return C.gyre_measure(computes[in], (*C.double)(&bandwidth), (*C.double)(&flops))
	})
	return bandwidth, flops, err
}

// MeasureRows measures for a fifth of a second how many numbers per second go through the kernel of SwiGLU, which takes
// an exponential of each: the rate of the work on rows between the products.
func MeasureRows() (numbers float64, err error) {
	err = invoke(func() code { return C.gyre_measure_rows((*C.double)(&numbers)) })
	return numbers, err
}

// InstructionSet is one variant of the kernels.
type InstructionSet struct {
	Name              string
	RunsHere, InUse   bool
	BF16IsFaster      bool    // products of bf16 numbers take clearly less time than those of f32 ones
	Float32, BFloat16 float64 // FLOP/s of matrix products from the caches, where it runs and was measured
}

// InstructionSetInUse is the variant that computes, not measured.
func InstructionSetInUse() (InstructionSet, error) {
	all, err := instructionSets(false)
	if err != nil {
		return InstructionSet{}, err
	}
	return all[slices.IndexFunc(all, func(s InstructionSet) bool { return s.InUse })], nil
}

// InstructionSets measures the library's variants of the kernels, for some tenths of a second each. The best that runs
// here is in use, or the one that GYRE_ISA names.
func InstructionSets() ([]InstructionSet, error) { return instructionSets(true) }

func instructionSets(measure bool) (all []InstructionSet, err error) {
	err = invoke(func() code {
		for {
			var set C.gyre_isa
			status := C.gyre_describe_isa(C.int32_t(len(all)), C.bool(measure), &set)
			if status != C.GYRE_OK || set.name[0] == 0 {
				return status
			}
			all = append(all, InstructionSet{Name: C.GoString(&set.name[0]), RunsHere: bool(set.runs_here),
				InUse: bool(set.in_use), BF16IsFaster: bool(set.bf16_is_faster), Float32: float64(set.f32_flops),
				BFloat16: float64(set.bf16_flops)})
		}
	})
	return all, err
}
