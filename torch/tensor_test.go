package torch

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"
)

// embedding is a parameter of 2 x 2.
func embedding(t *testing.T) *Tensor {
	t.Helper()
	m, err := NewModel(ModelConfig{VocabSize: 2, HiddenSize: 2, IntermediateSize: 2, NumLayers: 1, NumHeads: 1,
		NumKVHeads: 1, HeadDim: 2, MaxPositions: 2, RMSNormEps: 1e-5, RopeTheta: 10000})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	parameters, err := m.Parameters()
	if err != nil {
		t.Fatal(err)
	}
	CloseParameters(parameters[1:])
	t.Cleanup(func() { parameters[0].Tensor.Close() })
	return parameters[0].Tensor
}

func TestTensorRoundTrip(t *testing.T) {
	tensor := embedding(t)
	// bfloat16 patterns of 1, -2, 0.5, 3, by rows.
	data := binary.LittleEndian.AppendUint16(nil, 0x3f80)
	for _, bits := range []uint16{0xc000, 0x3f00, 0x4040} {
		data = binary.LittleEndian.AppendUint16(data, bits)
	}
	if err := tensor.CopyIn(BF16, []int64{2, 2}, data); err != nil {
		t.Fatal(err)
	}
	values, err := tensor.Float32s()
	if err != nil || !slices.Equal(values, []float32{1, -2, 0.5, 3}) {
		t.Errorf("got %v, %v", values, err)
	}
	for name, err := range map[string]error{
		"short data":    tensor.CopyIn(F32, []int64{2, 2}, data),
		"no data":       tensor.CopyIn(F32, []int64{2, 2}, nil),
		"other shape":   tensor.CopyIn(BF16, []int64{4}, data),
		"unknown dtype": tensor.CopyIn(DType(77), []int64{2, 2}, data),
		"short buffer":  tensor.CopyOut(F32, make([]byte, 15)),
	} {
		if !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFromHandleTakesOwnership(t *testing.T) {
	tensor := embedding(t)
	other := FromHandle(tensor.Handle())
	tensor.c = nil // given away, as a gotorch program would
	defer other.Close()
	if shape, err := other.Shape(); err != nil || !slices.Equal(shape, []int64{2, 2}) {
		t.Errorf("shape %v, %v", shape, err)
	}
}

func TestDTypeNames(t *testing.T) {
	if BF16.String() != "bfloat16" || BF16.Size() != 2 || F64.Size() != 8 || DType(77).String() != "DType(77)" {
		t.Error(BF16, BF16.Size(), F64.Size(), DType(77))
	}
}
