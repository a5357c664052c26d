package weights

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/x448/float16"
)

// kind is a tensor type of GGUF: blocks of `block` elements in `size` bytes. decode turns whole blocks into float32;
// nil for plain types.
type kind struct {
	name        string
	block, size int64
	dtype       DType
	decode      func(out, blocks []byte)
}

// kinds are the supported types by their number in the file: plain ones, and those of files that a model is trained
// from. The finer quantised types lose too much for that.
var kinds = map[uint64]kind{
	0:  {"float32", 1, 4, F32, nil},
	1:  {"float16", 1, 2, F16, nil},
	30: {"bfloat16", 1, 2, BF16, nil},
	3:  {"Q4_1", 32, 20, F32, decodeQ41},
	8:  {"Q8_0", 32, 34, F32, decodeQ80},
}

func half(b []byte) float32 { return float16.Frombits(binary.LittleEndian.Uint16(b)).Float32() }

func put(out []byte, i int, v float32) { binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(v)) }

// decodeQ41 decodes blocks of a scale, a minimum and 32 nibbles, of which the low ones are the first half of the
// block. The product is rounded to float32 before the sum (the conversion forbids fusing them), as in the reference.
func decodeQ41(out, blocks []byte) {
	for b := range slices.Chunk(blocks, 20) {
		d, m := half(b), half(b[2:])
		for j, q := range b[4:] {
			put(out, j, float32(d*float32(q&15))+m)
			put(out, j+16, float32(d*float32(q>>4))+m)
		}
		out = out[4*32:]
	}
}

// decodeQ80 decodes blocks of a scale and 32 signed bytes.
func decodeQ80(out, blocks []byte) {
	for b := range slices.Chunk(blocks, 34) {
		d := half(b)
		for j, q := range b[2:] {
			put(out, j, d*float32(int8(q)))
		}
		out = out[4*32:]
	}
}
