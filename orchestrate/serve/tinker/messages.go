package tinker

import (
	"encoding/binary"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"

	"gyre/orchestrate/serve"
)

// The messages of the client's tinker_public.proto that are read and written, without what nobody reads here. The
// library knows fields by the numbers in their tags. Each member of a oneof is a field that may be nil.

// message makes a struct one that the library takes.
type message struct{}

func (*message) Reset()         {}
func (*message) String() string { return "" }
func (*message) ProtoMessage()  {}

func marshal(m protoadapt.MessageV1) ([]byte, error) { return proto.Marshal(protoadapt.MessageV2Of(m)) }

func unmarshal(data []byte, m protoadapt.MessageV1) error {
	return proto.Unmarshal(data, protoadapt.MessageV2Of(m))
}

// forwardBackward is a ForwardBackwardRequest.
type forwardBackward struct {
	message
	Model       string                `protobuf:"bytes,1,opt"`
	Seq         int32                 `protobuf:"varint,2,opt"`
	Data        []*datum              `protobuf:"bytes,3,rep"`
	Loss        string                `protobuf:"bytes,4,opt"`
	Numbers     map[string]float64    `protobuf:"bytes,5,rep" protobuf_key:"bytes,1,opt" protobuf_val:"fixed64,2,opt"`
	ForwardOnly bool                  `protobuf:"varint,6,opt"`
	Config      map[string]*lossValue `protobuf:"bytes,7,rep" protobuf_key:"bytes,1,opt" protobuf_val:"bytes,2,opt"`
}

// lossValue is one of the loss's configuration in its newer form, which comes after Numbers and wins.
type lossValue struct {
	Number *float64 `protobuf:"fixed64,1,opt"`
	Text   *string  `protobuf:"bytes,2,opt"`
}

// datum is a sequence with what the loss reads of its tokens.
type datum struct {
	Chunks []*chunk           `protobuf:"bytes,1,rep"`
	Inputs map[string]*tensor `protobuf:"bytes,2,rep" protobuf_key:"bytes,1,opt" protobuf_val:"bytes,2,opt"`
}

type chunk struct {
	Text *textChunk `protobuf:"bytes,1,opt"`
}

type textChunk struct {
	Tokens []byte `protobuf:"bytes,1,opt"`
}

type tensor struct {
	Dense  []byte  `protobuf:"bytes,1,opt"`
	Sparse *csr    `protobuf:"bytes,2,opt"`
	DType  int32   `protobuf:"varint,3,opt"`
	Shape  []int64 `protobuf:"varint,4,rep,packed"`
}

// csr is a sparse matrix: values, where rows begin, columns.
type csr struct {
	Values  []byte `protobuf:"bytes,1,opt"`
	Begins  []byte `protobuf:"bytes,2,opt"`
	Columns []byte `protobuf:"bytes,3,opt"`
}

type forwardBackwardOutput struct {
	message
	Kind    string             `protobuf:"bytes,1,opt"`
	Records []*arrayRecord     `protobuf:"bytes,2,rep"`
	Metrics map[string]float64 `protobuf:"bytes,3,rep" protobuf_key:"bytes,1,opt" protobuf_val:"fixed64,2,opt"`
}

type arrayRecord struct {
	Kind   string              `protobuf:"bytes,1,opt"`
	Fields map[string]*batched `protobuf:"bytes,2,rep" protobuf_key:"bytes,1,opt" protobuf_val:"bytes,2,opt"`
	Datums int64               `protobuf:"varint,3,opt"`
}

type batched struct {
	Data     []byte  `protobuf:"bytes,1,opt"`
	Offsets  []byte  `protobuf:"bytes,2,opt"`
	DType    int32   `protobuf:"varint,3,opt"`
	Trailing []int64 `protobuf:"varint,4,rep,packed"`
}

type sampleResponse struct {
	message
	Sequences []*sampledSequence `protobuf:"bytes,1,rep"`
	Logprobs  []byte             `protobuf:"bytes,2,opt"` // of the prompt
	Top       *topLogprobs       `protobuf:"bytes,3,opt"` // likewise
	Cached    int32              `protobuf:"varint,4,opt"`
}

type sampledSequence struct {
	Reason   int32        `protobuf:"varint,1,opt"` // 0 is stop, 1 length
	Tokens   []byte       `protobuf:"bytes,2,opt"`
	Logprobs []byte       `protobuf:"bytes,3,opt"`
	Top      *topLogprobs `protobuf:"bytes,4,opt"`
}

type topLogprobs struct {
	IDs      []byte `protobuf:"bytes,1,opt"`
	Logprobs []byte `protobuf:"bytes,2,opt"`
	K        uint32 `protobuf:"varint,3,opt"`
	Length   uint32 `protobuf:"varint,4,opt"`
}

// The element types of tensors.
const (
	dtypeFloat32 = 1 + iota
	dtypeInt64
	dtypeInt32
	dtypeBFloat16
)

// read gives the tokens of a datum, and its inputs by their names.
func (d *datum) read() (tokens []int32, inputs map[string]array, err error) {
	for _, c := range d.Chunks {
		if c.Text == nil {
			return nil, nil, serve.Bad("model_input", "a chunk of the model's input is no text: this server has models "+
				"of text only")
		}
		ids := make([]int32, len(c.Text.Tokens)/4)
		_, _ = binary.Decode(c.Text.Tokens, binary.LittleEndian, ids) // there are enough bytes
		tokens = append(tokens, ids...)
	}
	inputs = map[string]array{}
	for key, t := range d.Inputs {
		if inputs[key], err = t.read(); err != nil {
			return nil, nil, serve.Bad(key, "loss_fn_inputs.%s: %v", key, err)
		}
	}
	return tokens, inputs, nil
}

// array is a tensor in row-major order. Of a sparse one, listed says which elements were there.
type array struct {
	values []float64
	shape  []int64
	listed []bool // nil: all
}

// maxElements bounds an array that a short message of a sparse one describes.
const maxElements = 1 << 26

func (t *tensor) read() (array, error) {
	if t.Sparse != nil {
		return t.dense()
	}
	out := array{values: numbers(t.Dense, t.DType), shape: t.Shape}
	if out.shape == nil {
		out.shape = []int64{int64(len(out.values))}
	}
	if elements(out.shape) != int64(len(out.values)) {
		return out, serve.Bad("shape", "the shape is %v, but there are %d values of type %d", out.shape,
			len(out.values), t.DType)
	}
	return out, nil
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

// dense makes a sparse matrix (CSR) dense.
func (t *tensor) dense() (array, error) {
	n, out := elements(t.Shape), array{shape: t.Shape}
	values := numbers(t.Sparse.Values, t.DType)
	begins, columns := numbers(t.Sparse.Begins, dtypeInt64), numbers(t.Sparse.Columns, dtypeInt64)
	if len(t.Shape) != 2 || n < 0 || int64(len(begins)) != t.Shape[0]+1 || len(values) != len(columns) ||
		begins[0] != 0 || begins[t.Shape[0]] != float64(len(values)) || !slices.IsSorted(begins) {
		return out, serve.Bad("sparse_csr", "it is no sparse matrix of shape %v", t.Shape)
	}
	out.values, out.listed = make([]float64, n), make([]bool, n)
	for row := range t.Shape[0] {
		for k := int(begins[row]); k < int(begins[row+1]); k++ {
			if columns[k] < 0 || columns[k] >= float64(t.Shape[1]) {
				return out, serve.Bad("sparse_csr", "column %v of a matrix of shape %v", columns[k], t.Shape)
			}
			at := row*t.Shape[1] + int64(columns[k])
			out.values[at], out.listed[at] = values[k], true
		}
	}
	return out, nil
}

// numbers reads little-endian elements; none of a type that there is not.
func numbers(raw []byte, dtype int32) []float64 {
	size := map[int32]int{dtypeFloat32: 4, dtypeInt64: 8, dtypeInt32: 4, dtypeBFloat16: 2}[dtype]
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

// bytesOf are numbers as the messages hold them.
func bytesOf[T int32 | int64 | float32](values []T) []byte {
	raw, _ := binary.Append(nil, binary.LittleEndian, values) // numbers of a fixed size always have bytes
	return raw
}
