package weights

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/x448/float16"
)

// kind is a tensor type of GGUF: blocks of `block` elements in `size` bytes. decode turns one block into float32; nil for
// plain types.
type kind struct {
	name        string
	block, size int64
	dtype       DType
	decode      func(out *[256]float32, block []byte)
}

// kinds are the supported types by their number in the file.
var kinds = map[uint32]kind{
	0:  {"F32", 1, 4, F32, nil},
	1:  {"F16", 1, 2, F16, nil},
	30: {"BF16", 1, 2, BF16, nil},
	2:  {"Q4_0", 32, 18, F32, decodeQ40},
	3:  {"Q4_1", 32, 20, F32, decodeQ41},
	6:  {"Q5_0", 32, 22, F32, decodeQ50},
	7:  {"Q5_1", 32, 24, F32, decodeQ51},
	8:  {"Q8_0", 32, 34, F32, decodeQ80},
	12: {"Q4_K", 256, 144, F32, decodeQ4K},
	13: {"Q5_K", 256, 176, F32, decodeQ5K},
	14: {"Q6_K", 256, 210, F32, decodeQ6K},
}

func kindNames() string {
	var names []string
	for _, k := range kinds {
		names = append(names, k.name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// dequantize fills out (float32, little-endian) from whole blocks.
func (k kind) dequantize(out, blocks []byte) {
	var values [256]float32
	for i := int64(0); i*k.size < int64(len(blocks)); i++ {
		k.decode(&values, blocks[i*k.size:(i+1)*k.size])
		for j, v := range values[:k.block] {
			binary.LittleEndian.PutUint32(out[4*(i*k.block+int64(j)):], math.Float32bits(v))
		}
	}
}

func half(b []byte) float32 { return float16.Frombits(binary.LittleEndian.Uint16(b)).Float32() }

// The products below are rounded to float32 before the sum (the conversions forbid fusing them), as in the reference.

// Q4_0: scale; 32 nibbles around 8. The low nibbles are the first half of the block.
func decodeQ40(out *[256]float32, b []byte) {
	d := half(b)
	for j, q := range b[2:18] {
		out[j] = d * float32(int(q&15)-8)
		out[j+16] = d * float32(int(q>>4)-8)
	}
}

// Q4_1: scale, minimum; 32 nibbles.
func decodeQ41(out *[256]float32, b []byte) {
	d, m := half(b), half(b[2:])
	for j, q := range b[4:20] {
		out[j] = float32(d*float32(q&15)) + m
		out[j+16] = float32(d*float32(q>>4)) + m
	}
}

// Q5_0: scale; the fifth bits of 32 values; 32 nibbles around 16.
func decodeQ50(out *[256]float32, b []byte) {
	d, high := half(b), binary.LittleEndian.Uint32(b[2:])
	for j, q := range b[6:22] {
		out[j] = d * float32(int(q&15|byte(high>>j&1)<<4)-16)
		out[j+16] = d * float32(int(q>>4|byte(high>>(j+16)&1)<<4)-16)
	}
}

// Q5_1: scale, minimum; the fifth bits; 32 nibbles.
func decodeQ51(out *[256]float32, b []byte) {
	d, m, high := half(b), half(b[2:]), binary.LittleEndian.Uint32(b[4:])
	for j, q := range b[8:24] {
		out[j] = float32(d*float32(q&15|byte(high>>j&1)<<4)) + m
		out[j+16] = float32(d*float32(q>>4|byte(high>>(j+16)&1)<<4)) + m
	}
}

// Q8_0: scale; 32 signed bytes.
func decodeQ80(out *[256]float32, b []byte) {
	d := half(b)
	for j, q := range b[2:34] {
		out[j] = d * float32(int8(q))
	}
}

// scaleMin unpacks the 6-bit scale and minimum of sub-block j (of 8) from the 12 bytes that Q4_K and Q5_K share.
func scaleMin(j int, s []byte) (scale, minimum float32) {
	if j < 4 {
		return float32(s[j] & 63), float32(s[j+4] & 63)
	}
	return float32(s[j+4]&15 | s[j-4]>>6<<4), float32(s[j+4]>>4 | s[j]>>6<<4)
}

// Q4_K: super-scales of scales and minima; 8 sub-blocks of 32 with a 6-bit scale and minimum each; nibbles, two
// sub-blocks per 32 bytes.
func decodeQ4K(out *[256]float32, b []byte) {
	decodeK(out, half(b), half(b[2:]), b[4:16], nil, b[16:144])
}

// Q5_K: Q4_K with a plane of fifth bits, bit j of high[l] for sub-block j.
func decodeQ5K(out *[256]float32, b []byte) {
	decodeK(out, half(b), half(b[2:]), b[4:16], b[16:48], b[48:176])
}

func decodeK(out *[256]float32, d, dmin float32, scales, high, low []byte) {
	for j := range 8 {
		s, m := scaleMin(j, scales)
		scale, minimum := float32(d*s), float32(dmin*m)
		for l := range 32 {
			q := low[j/2*32+l] >> (4 * (j % 2)) & 15
			if high != nil {
				q |= high[l] >> j & 1 << 4
			}
			out[32*j+l] = float32(scale*float32(q)) - minimum
		}
	}
}

// Q6_K: 256 6-bit values around 32 as low nibbles and a plane of upper bit pairs, 16 signed scales, and a super-scale
// at the end.
func decodeQ6K(out *[256]float32, b []byte) {
	low, high, scales, d := b[:128], b[128:192], b[192:208], half(b[208:])
	for i := range 256 {
		part, l := i/128, i%128 // two halves of 128 with their own 64 + 32 bytes
		group, k := l/32, l%32  // four groups of 32 share 32 bytes of bit pairs
		q := low[64*part+32*(group%2)+k] >> (4 * (group / 2)) & 15
		q |= high[32*part+k] >> (2 * group) & 3 << 4
		scale := float32(d * float32(int8(scales[8*part+2*group+k/16])))
		out[i] = scale * float32(int(q)-32)
	}
}
