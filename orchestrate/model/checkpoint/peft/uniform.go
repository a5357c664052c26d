package peft

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"gyre/orchestrate/model/checkpoint/weights"
	"gyre/torch"
)

// MergeOnlyError says what of an adapter no adapter beside a base can express.
type MergeOnlyError struct{ problem string }

func (e *MergeOnlyError) Error() string { return e.problem + ": make a model of it (gyre model merge)" }

// Uniform gives the rank, the scale and the targets (q_proj … down_proj, embed_tokens, lm_head) of the one adapter as
// which Gyre trains and samples with all of them: the highest rank, and the scale of a module that has it. See Fit.
func (a *Adapter) Uniform() (rank int64, scale float64, targets []string, err error) {
	if len(a.Whole) > 0 {
		return 0, 0, nil, &MergeOnlyError{slices.Sorted(maps.Keys(a.Whole))[0] +
			" is trained itself, not by an adapter beside it"}
	}
	for _, m := range a.Modules {
		name := target(m.Name)
		if m.experts > 0 {
			name = "experts." + name
		}
		if torch.TargetsOf([]string{name}) == 0 || m.experts == 0 && strings.Contains(m.Name, ".mlp.experts.") {
			return 0, 0, nil, &MergeOnlyError{m.Name + " has an adapter, and none lies beside it here"}
		}
		if m.Scale == 0 {
			return 0, 0, nil, &MergeOnlyError{"the adapter of " + m.Name + " has the scale 0"}
		}
		if !slices.Contains(targets, name) {
			targets = append(targets, name)
		}
		if m.Rank > rank {
			rank, scale = m.Rank, m.Scale
		}
	}
	return rank, scale, targets, nil
}

// Fit makes the tensors of all modules ones of a rank and a scale: A and B are filled up with zeros, and B is
// multiplied by what scales differ.
func (a *Adapter) Fit(rank int64, scale float64) error {
	for i, m := range a.Modules {
		if m.Rank > rank {
			return fmt.Errorf("the adapter of %s has rank %d, expected at most %d", m.Name, m.Rank, rank)
		}
		names, factor := m.names(), m.Scale/scale
		experts := max(m.experts, 1)
		if m.Rank < rank {
			a.Tensors[names[0]] = filled(a.Tensors[names[0]], 0, experts, m.Rank, rank)
		}
		if m.Rank < rank || factor != 1 {
			a.Tensors[names[1]] = filled(a.Tensors[names[1]], factor, experts, m.Rank, rank)
		}
		a.Modules[i].Rank, a.Modules[i].Scale = rank, scale
	}
	return nil
}

// filled is an A (whose factor is 0: it stays as it is) with further rows after those of each expert, or a B times a
// factor with further columns, as float32.
func filled(t *weights.Tensor, factor float64, experts, from, to int64) *weights.Tensor {
	out := *t
	out.DType, out.Kind, out.Part = weights.F32, weights.F32.String(), nil
	stretch := from * experts // numbers that zeros follow: a row of B, or the rows of an expert
	if out.Shape = slices.Clone(t.Shape); factor == 0 {
		factor, stretch = 1, from*t.Shape[1]
		out.Shape[0] = to * experts
	} else {
		out.Shape[1] = to * experts
	}
	out.Load = func(buffer []byte) ([]byte, error) {
		values, err := t.Float64s()
		buffer = buffer[:0]
		for part := range slices.Chunk(values, int(stretch)) {
			for _, x := range part {
				buffer = binary.LittleEndian.AppendUint32(buffer, math.Float32bits(float32(x*factor)))
			}
			buffer = append(buffer, make([]byte, 4*stretch/from*(to-from))...)
		}
		return buffer, err
	}
	return &out
}

// finite is a tensor that refuses to be loaded with numbers that are none.
func finite(t *weights.Tensor) *weights.Tensor {
	exponent := map[weights.DType]uint16{weights.F32: 0x7f80, weights.BF16: 0x7f80, weights.F16: 0x7c00,
		weights.F64: 0x7ff0}[t.DType] // in the highest two bytes: all set of NaN and infinity
	check := func(data []byte, err error) ([]byte, error) {
		size := int(t.DType.Size())
		for at := size - 2; err == nil && exponent != 0 && at < len(data); at += size {
			if binary.LittleEndian.Uint16(data[at:])&exponent == exponent {
				return nil, fmt.Errorf("%s: %s: number %d is NaN or infinite: the adapter is damaged, or its training "+
					"diverged", t.File, t.Name, at/size)
			}
		}
		return data, err
	}
	out := *t
	out.Load = func(buffer []byte) ([]byte, error) { return check(t.Load(buffer)) }
	if t.Part != nil {
		out.Part = func(buffer []byte, first, count int64) ([]byte, error) { return check(t.Part(buffer, first, count)) }
	}
	return &out
}
