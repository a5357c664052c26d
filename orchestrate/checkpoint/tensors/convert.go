package tensors

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Convert writes n elements of src, little-endian, as elements of another type into dst. Rounding is to nearest, ties
// to even, by way of float32, as PyTorch's. Equal types are copied bit for bit.
func Convert(dst []byte, to DType, src []byte, from DType) error {
	if !from.Float() || !to.Float() {
		return fmt.Errorf("cannot convert %v to %v: weights are float32, bfloat16, float16 or float64", from, to)
	}
	n := int64(len(src)) / from.Size()
	if int64(len(src)) != n*from.Size() || int64(len(dst)) != n*to.Size() {
		return fmt.Errorf("converting %d bytes of %v into %d bytes of %v: sizes do not match", len(src), from, len(dst), to)
	}
	if from == to {
		copy(dst, src)
		return nil
	}
	le := binary.LittleEndian
	for i := range n {
		var x float64
		switch from {
		case F64:
			x = math.Float64frombits(le.Uint64(src[8*i:]))
		case F32:
			x = float64(math.Float32frombits(le.Uint32(src[4*i:])))
		case BF16:
			x = float64(math.Float32frombits(uint32(le.Uint16(src[2*i:])) << 16))
		case F16:
			x = float64(HalfToFloat(le.Uint16(src[2*i:])))
		}
		switch to {
		case F64:
			le.PutUint64(dst[8*i:], math.Float64bits(x))
		case F32:
			le.PutUint32(dst[4*i:], math.Float32bits(float32(x)))
		case BF16:
			le.PutUint16(dst[2*i:], floatToBFloat(float32(x)))
		case F16:
			le.PutUint16(dst[2*i:], floatToHalf(float32(x)))
		}
	}
	return nil
}

// HalfToFloat widens an IEEE half, exactly.
func HalfToFloat(h uint16) float32 {
	sign := uint32(h>>15) << 31
	exponent, mantissa := uint32(h>>10)&0x1f, uint32(h)&0x3ff
	switch exponent {
	case 0x1f: // infinity, NaN
		return math.Float32frombits(sign | 0xff<<23 | mantissa<<13)
	case 0: // zero, subnormal: mantissa · 2^-24
		return math.Float32frombits(sign | math.Float32bits(float32(mantissa)*0x1p-24))
	default:
		return math.Float32frombits(sign | (exponent+127-15)<<23 | mantissa<<13)
	}
}

func floatToHalf(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b>>16) & 0x8000
	b &^= 1 << 31
	switch {
	case b > 0xff<<23: // NaN
		return sign | 0x7e00
	case b >= 0x47800000: // 65536 and more; 65520..65535 overflow below by rounding up
		return sign | 0x7c00
	case b < 0x38800000: // below 2^-14: subnormal. Adding 0.5 leaves the mantissa rounded to units of 2^-24.
		return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-math.Float32bits(0.5))
	default:
		return sign | uint16((b+0xfff+(b>>13&1))>>13-(127-15)<<10)
	}
}

func floatToBFloat(f float32) uint16 {
	b := math.Float32bits(f)
	if b&^(1<<31) > 0xff<<23 { // NaN must not round to infinity
		return uint16(b>>16)&0x8000 | 0x7fc0
	}
	return uint16((b + 0x7fff + (b >> 16 & 1)) >> 16)
}

// Dense loads a tensor as dense row-major data of the given type. The scratch buffers are reused when large enough;
// both come back, perhaps grown, the first holding the result.
func (t *Tensor) Dense(to DType, out, scratch []byte) (result, used []byte, err error) {
	n := t.Elements()
	data, err := t.Load(scratch)
	if err != nil {
		return nil, scratch, err
	}
	if n > 0 && !Contiguous(t.Shape, t.Strides) {
		dense := make([]byte, n*t.DType.Size())
		gather(dense, data, t.Shape, t.Strides, t.DType.Size())
		data = dense
	}
	out = Resize(out, n*to.Size())
	if err := Convert(out, to, data[:n*t.DType.Size()], t.DType); err != nil {
		return nil, data, fmt.Errorf("%s: tensor %s: %w", t.File, t.Name, err)
	}
	return out, data, nil
}

// gather copies strided elements of the given size, at least one, into dense row-major order. It recurses once per
// dimension (at most a few).
func gather(dst, src []byte, shape, strides []int64, size int64) []byte {
	if len(shape) == 0 {
		return dst[copy(dst, src[:size]):]
	}
	for i := range shape[0] {
		at := i * strides[0] * size
		if len(shape) > 1 {
			dst = gather(dst, src[at:], shape[1:], strides[1:], size)
			continue
		}
		dst = dst[copy(dst, src[at:at+size]):]
	}
	return dst
}
