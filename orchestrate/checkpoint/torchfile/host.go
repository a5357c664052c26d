package torchfile

import (
	"errors"
	"fmt"

	"gyre/orchestrate/checkpoint/pickle"
	"gyre/orchestrate/checkpoint/tensors"
)

// storageType stands for a class such as torch.FloatStorage.
type storageType tensors.DType

// storage is a storage of the archive, seen as elements of one type.
type storage struct {
	record
	dtype    tensors.DType
	elements int64
}

// view is a tensor: a strided window on a storage.
type view struct {
	storage        storage
	offset, span   int64 // in elements
	shape, strides []int64
}

// host gives a checkpoint's pickle the meanings it may use.
type host struct {
	archive *archive
	types   map[string]tensors.DType // of the storages seen: one type each
}

func (h *host) globals() map[string]any {
	g := map[string]any{
		"collections.OrderedDict":                    pickle.Func(orderedDict),
		"torch.Size":                                 pickle.Func(torchSize),
		"torch._utils._rebuild_tensor_v2":            pickle.Func(rebuildTensor),
		"torch._utils._rebuild_parameter":            pickle.Func(rebuildParameter),
		"torch._utils._rebuild_parameter_with_state": pickle.Func(rebuildParameter),
	}
	for name, dtype := range map[string]tensors.DType{"Float": tensors.F32, "Half": tensors.F16, "BFloat16": tensors.BF16,
		"Double": tensors.F64, "Long": tensors.I64, "Int": tensors.I32, "Short": tensors.I16, "Char": tensors.I8, "Byte": tensors.U8,
		"Bool": tensors.Bool} {
		g["torch."+name+"Storage"] = storageType(dtype)
	}
	for d := tensors.F32; d <= tensors.F8E5M2; d++ { // dtypes as values beside the weights
		g["torch."+d.String()] = d
	}
	return g
}

// persistent resolves ("storage", type, key, location, elements).
func (h *host) persistent(id any) (any, error) {
	t, ok := id.(pickle.Tuple)
	if !ok || len(t) != 5 || t[0] != "storage" {
		return nil, fmt.Errorf("refused: a persistent id that is not a storage of five parts (%s)", pickle.TypeName(id))
	}
	kind, ok1 := t[1].(storageType)
	key, ok2 := t[2].(string)
	n, ok3 := t[4].(int64)
	if !ok1 || !ok2 || !ok3 {
		return nil, fmt.Errorf("refused: a storage described by %s, %s, %s", pickle.TypeName(t[1]), pickle.TypeName(t[2]), pickle.TypeName(t[4]))
	}
	dtype := tensors.DType(kind)
	r, ok := h.archive.records["data/"+key]
	if !ok {
		return nil, fmt.Errorf("storage %q is not in the archive", key)
	}
	if first, seen := h.types[key]; seen && first != dtype {
		return nil, fmt.Errorf("refused: storage %q is used as %v and as %v", key, first, dtype)
	}
	h.types[key] = dtype
	if n < 0 || n > tensors.MaxElements || n*dtype.Size() > r.size {
		return nil, fmt.Errorf("storage %q claims %d elements of %v, its entry has %d bytes: truncated?", key, n, dtype, r.size)
	}
	return storage{record: r, dtype: dtype, elements: n}, nil
}

// orderedDict makes the empty dict that SETITEMS fills.
func orderedDict(args pickle.Tuple) (any, error) {
	if len(args) != 0 {
		return nil, fmt.Errorf("OrderedDict with %d arguments, expected none", len(args))
	}
	return pickle.NewDict(), nil
}

func torchSize(args pickle.Tuple) (any, error) {
	if len(args) != 1 {
		return nil, fmt.Errorf("torch.Size with %d arguments, expected 1", len(args))
	}
	shape, err := integers(args[0])
	if err != nil {
		return nil, err
	}
	out := make(pickle.Tuple, len(shape))
	for i, n := range shape {
		out[i] = n
	}
	return out, nil
}

// rebuildTensor is _rebuild_tensor_v2(storage, storage_offset, size, stride, requires_grad, backward_hooks,
// metadata=None).
func rebuildTensor(args pickle.Tuple) (any, error) {
	if len(args) != 6 && len(args) != 7 {
		return nil, fmt.Errorf("a tensor of %d parts, expected 6 or 7", len(args))
	}
	s, ok := args[0].(storage)
	if !ok {
		return nil, fmt.Errorf("a tensor on a %s, expected a storage", pickle.TypeName(args[0]))
	}
	offset, ok := args[1].(int64)
	if !ok || offset < 0 {
		return nil, fmt.Errorf("a tensor at storage offset %v", args[1])
	}
	shape, err := integers(args[2])
	if err != nil {
		return nil, err
	}
	strides, err := integers(args[3])
	if err != nil {
		return nil, err
	}
	span, err := tensors.Span(shape, strides)
	if err != nil {
		return nil, fmt.Errorf("a tensor of %w", err)
	}
	if n, _ := tensors.Elements(shape); n > s.elements { // an expanded tensor: a few bytes could pose as terabytes
		return nil, fmt.Errorf("a tensor of shape %v repeats the %d elements of its storage: save it with .contiguous()", shape, s.elements)
	}
	if offset > s.elements || span > s.elements-offset {
		return nil, fmt.Errorf("a tensor of shape %v and strides %v at offset %d reaches beyond its storage of %d elements",
			shape, strides, offset, s.elements)
	}
	return view{storage: s, offset: offset, span: span, shape: shape, strides: strides}, nil
}

// rebuildParameter is _rebuild_parameter(data, requires_grad, backward_hooks): the data.
func rebuildParameter(args pickle.Tuple) (any, error) {
	if len(args) == 0 {
		return nil, errors.New("a parameter without data")
	}
	v, ok := args[0].(view)
	if !ok {
		return nil, fmt.Errorf("a parameter made of a %s, expected a tensor", pickle.TypeName(args[0]))
	}
	return v, nil
}

// maxDims is PyTorch's own limit.
const maxDims = 64

func integers(v any) ([]int64, error) {
	t, ok := v.(pickle.Tuple)
	if !ok || len(t) > maxDims {
		return nil, fmt.Errorf("sizes or strides are a %s, expected a tuple of at most %d integers", pickle.TypeName(v), maxDims)
	}
	out := make([]int64, len(t))
	for i, x := range t {
		if out[i], ok = x.(int64); !ok {
			return nil, fmt.Errorf("sizes or strides hold a %s, expected integers", pickle.TypeName(x))
		}
	}
	return out, nil
}
