package tinker

import (
	"encoding/binary"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"gyre/orchestrate/serve"
)

// forwardBackward is a ForwardBackwardRequest.
type forwardBackward struct {
	model       string
	seq         int64
	data        []datum
	loss        string
	numbers     map[string]float64 // of the loss's configuration
	texts       map[string]string
	forwardOnly bool
}

// datum is a sequence with what the loss reads of its tokens.
type datum struct {
	tokens []int32
	inputs map[string]tensor
}

// The element types of tensors on the wire.
const (
	dtypeFloat32 = 1 + iota
	dtypeInt64
	dtypeInt32
	dtypeBFloat16
)

// tensor is a dense array in row-major order. Of a sparse one, listed says which elements were there.
type tensor struct {
	values []float64
	shape  []int64
	listed []bool // nil: all
}

// maxElements bounds a tensor that a short message of a sparse one describes.
const maxElements = 1 << 26

func readForwardBackward(message []byte) (in forwardBackward, err error) {
	in.numbers, in.texts = map[string]float64{}, map[string]string{}
	err = fields(message, func(number protowire.Number, v value) error {
		var err error
		switch number {
		case 1:
			in.model = string(v.bytes)
		case 2:
			in.seq = int64(v.number)
		case 3:
			var d datum
			d, err = readDatum(v.bytes)
			in.data = append(in.data, d)
		case 4:
			in.loss = string(v.bytes)
		case 5:
			var key string
			var of value
			key, of, err = entry(v.bytes)
			in.numbers[key] = of.float()
		case 6:
			in.forwardOnly = v.number != 0
		case 7:
			err = in.readConfig(v.bytes)
		}
		return err
	})
	return in, err
}

// readConfig reads an entry of the configuration in its newer form, which comes after the older one and wins.
func (in *forwardBackward) readConfig(message []byte) error {
	key, of, err := entry(message)
	if err != nil {
		return err
	}
	return fields(of.bytes, func(number protowire.Number, v value) error {
		if number == 1 {
			in.numbers[key] = v.float()
		} else {
			in.texts[key] = string(v.bytes)
		}
		return nil
	})
}

func readDatum(message []byte) (d datum, err error) {
	d.inputs = map[string]tensor{}
	err = fields(message, func(number protowire.Number, v value) error {
		switch number {
		case 1:
			tokens, err := readChunk(v.bytes)
			d.tokens = append(d.tokens, tokens...)
			return err
		case 2:
			key, of, err := entry(v.bytes)
			if err == nil {
				d.inputs[key], err = readTensor(of.bytes)
			}
			if err != nil {
				return serve.Bad(key, "loss_fn_inputs.%s: %v", key, err)
			}
		}
		return nil
	})
	return d, err
}

func readChunk(message []byte) (tokens []int32, err error) {
	err = fields(message, func(number protowire.Number, v value) error {
		if number != 1 {
			return serve.Bad("model_input", "a chunk of the model's input is no text: this server has models of text "+
				"only")
		}
		return fields(v.bytes, func(number protowire.Number, v value) error {
			for raw := v.bytes; number == 1 && len(raw) >= 4; raw = raw[4:] {
				tokens = append(tokens, int32(binary.LittleEndian.Uint32(raw)))
			}
			return nil
		})
	})
	return tokens, err
}

func readTensor(message []byte) (t tensor, err error) {
	var dense []byte
	var sparse [3][]byte // values, where rows begin, columns
	dtype, isSparse := 0, false
	err = fields(message, func(number protowire.Number, v value) error {
		var err error
		switch number {
		case 1:
			dense = v.bytes
		case 2:
			isSparse = true
			return fields(v.bytes, func(number protowire.Number, v value) error {
				if number >= 1 && number <= 3 {
					sparse[number-1] = v.bytes
				}
				return nil
			})
		case 3:
			dtype = int(v.number)
		case 4:
			t.shape, err = varints(t.shape, v)
		}
		return err
	})
	if err != nil {
		return t, err
	}
	if isSparse {
		return t.fill(numbers(sparse[0], dtype), numbers(sparse[1], dtypeInt64), numbers(sparse[2], dtypeInt64))
	}
	t.values = numbers(dense, dtype)
	if t.shape == nil {
		t.shape = []int64{int64(len(t.values))}
	}
	if elements(t.shape) != int64(len(t.values)) {
		return t, serve.Bad("shape", "the shape is %v, but there are %d values of type %d", t.shape, len(t.values),
			dtype)
	}
	return t, nil
}

// elements counts those of a shape; -1 for one that no tensor has.
func elements(shape []int64) int64 {
	n := int64(1)
	for _, x := range shape {
		if x < 0 || x > maxElements || n*x > maxElements {
			return -1
		}
		n *= x
	}
	return n
}

// fill makes a sparse matrix (CSR) dense.
func (t tensor) fill(values, begins, columns []float64) (tensor, error) {
	n := elements(t.shape)
	if len(t.shape) != 2 || n < 0 || int64(len(begins)) != t.shape[0]+1 || len(values) != len(columns) ||
		begins[0] != 0 || begins[t.shape[0]] != float64(len(values)) || !slices.IsSorted(begins) {
		return t, serve.Bad("sparse_csr", "it is no sparse matrix of shape %v", t.shape)
	}
	t.values, t.listed = make([]float64, n), make([]bool, n)
	for row := range t.shape[0] {
		for k := int(begins[row]); k < int(begins[row+1]); k++ {
			if columns[k] < 0 || columns[k] >= float64(t.shape[1]) {
				return t, serve.Bad("sparse_csr", "column %v of a matrix of shape %v", columns[k], t.shape)
			}
			at := row*t.shape[1] + int64(columns[k])
			t.values[at], t.listed[at] = values[k], true
		}
	}
	return t, nil
}

// numbers reads little-endian elements; none of a type that there is not.
func numbers(raw []byte, dtype int) []float64 {
	size := map[int]int{dtypeFloat32: 4, dtypeInt64: 8, dtypeInt32: 4, dtypeBFloat16: 2}[dtype]
	if size == 0 {
		return nil
	}
	out := make([]float64, 0, len(raw)/size)
	for ; len(raw) >= size; raw = raw[size:] {
		switch dtype {
		case dtypeFloat32:
			out = append(out, float64(math.Float32frombits(binary.LittleEndian.Uint32(raw))))
		case dtypeInt64:
			out = append(out, float64(int64(binary.LittleEndian.Uint64(raw))))
		case dtypeInt32:
			out = append(out, float64(int32(binary.LittleEndian.Uint32(raw))))
		case dtypeBFloat16:
			out = append(out, float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(raw))<<16)))
		}
	}
	return out
}

// logprobs are those of one datum: one per target, of which a position has as many as the trailing shape says.
type logprobs struct {
	values   []float32
	trailing []int64
}

// writeForwardBackward makes a ForwardBackwardOutput: a record per run of data with the same trailing shape.
func writeForwardBackward(outputs []logprobs, metrics map[string]float64) []byte {
	out := appendMessage(nil, 1, []byte("ArrayRecord"))
	for from := 0; from < len(outputs); {
		to := from + 1
		for to < len(outputs) && slices.Equal(outputs[to].trailing, outputs[from].trailing) {
			to++
		}
		var data, offsets []byte
		for _, o := range outputs[from:to] {
			offsets = binary.LittleEndian.AppendUint64(offsets, uint64(len(data)))
			data, _ = binary.Append(data, binary.LittleEndian, o.values)
		}
		offsets = binary.LittleEndian.AppendUint64(offsets, uint64(len(data)))
		batched := appendNumber(appendMessage(appendMessage(nil, 1, data), 2, offsets), 3, dtypeFloat32)
		for _, x := range outputs[from].trailing {
			batched = appendNumber(batched, 4, int(x))
		}
		record := appendEntry(appendMessage(nil, 1, []byte("ArrayRecord")), 2, "logprobs", batched)
		out = appendMessage(out, 2, appendNumber(record, 3, to-from))
		from = to
	}
	for name, x := range metrics {
		number := protowire.AppendTag(appendMessage(nil, 1, []byte(name)), 2, protowire.Fixed64Type)
		out = appendMessage(out, 3, protowire.AppendFixed64(number, math.Float64bits(x)))
	}
	return out
}
