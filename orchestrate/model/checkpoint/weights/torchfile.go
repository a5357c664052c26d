package weights

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/nlpodyssey/gopickle/types"
)

// archive is the zip file of a torch.save: one folder with data.pkl and the records of the storages.
type archive struct {
	reader io.ReaderAt
	size   int64
	path   string
	files  map[string]*zip.File
	folder string // with a slash at the end
}

// record is a file of the archive: its place in the zip file.
type record struct{ offset, size int64 }

// readTorch reads the state dict of torch.save's zip container. It may be wrapped as {"state_dict": …} or {"model": …};
// other values beside the tensors are ignored.
func readTorch(r io.ReaderAt, size int64, path string) *File {
	a := openArchive(r, size)
	a.path = path
	if _, ok := a.files[a.folder+"byteorder"]; ok {
		if order := a.read("byteorder"); string(order) != "little" {
			refuse("byte order %q, only little-endian files are read", order)
		}
	}
	return &File{Layout: "torch.save", Tensors: stateDict(a.unpickle(a.read("data.pkl")))}
}

// wrappers are the keys under which training programs keep the weights, in order of preference.
var wrappers = []any{"state_dict", "model_state_dict", "model", "module"}

// stateDict gives the tensors of the root, or of one of its wrappers. Wrappers come first: beside them there may be
// tensors that are no weights, such as a step counter.
func stateDict(root any) []*Tensor {
	top, ok := members(root)
	if !ok {
		refuse("data.pkl holds a %s, expected a state dict", typeName(root))
	}
	for _, key := range wrappers {
		i := slices.IndexFunc(top, func(e types.DictEntry) bool { return e.Key == key })
		if i < 0 {
			continue
		}
		inner, _ := members(top[i].Value)
		if list := tensorsOf(inner); list != nil {
			return list
		}
	}
	list := tensorsOf(top)
	if list == nil {
		refuse("no tensors in the dict of data.pkl or under its keys %v", wrappers)
	}
	return list
}

// members are the items of a dict or OrderedDict; ok is false for anything else.
func members(v any) (list []types.DictEntry, ok bool) {
	switch dict := v.(type) {
	case *types.Dict:
		return *dict, true
	case *types.OrderedDict:
		for e := dict.List.Front(); e != nil; e = e.Next() {
			entry := e.Value.(*types.OrderedDictEntry)
			list = append(list, types.DictEntry{Key: entry.Key, Value: entry.Value})
		}
		return list, true
	}
	return nil, false
}

// tensorsOf names the tensors among the items of a dict by their keys.
func tensorsOf(list []types.DictEntry) (tensors []*Tensor) {
	for _, e := range list {
		name, named := e.Key.(string)
		tensor, is := e.Value.(nameless)
		if named && is {
			tensors = append(tensors, tensor(name))
		}
	}
	return tensors
}

func openArchive(r io.ReaderAt, size int64) archive {
	head := bytesAt(r, 0, min(size, 16))
	if len(head) > 1 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5 {
		refuse("a pickle without the zip container of torch 1.6 and later: load it with a trusted torch and save it " +
			"again, best as safetensors")
	}
	if !bytes.HasPrefix(head, []byte("PK\x03\x04")) {
		refuse("not a zip archive (it begins with %q)", head)
	}
	z, err := zip.NewReader(r, size)
	if err != nil {
		refuse("not a readable zip archive: %w", err)
	}
	a := archive{reader: r, size: size, files: map[string]*zip.File{}}
	for _, f := range z.File {
		a.files[f.Name] = f
		if folder, ok := strings.CutSuffix(f.Name, "data.pkl"); ok {
			a.folder = folder
		}
	}
	return a
}

// record finds a file of the archive.
func (a archive) record(name string) record {
	f := a.files[a.folder+name]
	switch {
	case f == nil:
		refuse("no entry %q: not an archive that torch.save made", name)
	case f.Method != zip.Store:
		refuse("entry %q is compressed (method %d); torch.save stores tensors as they are", name, f.Method)
	}
	offset, err := f.DataOffset()
	if err != nil {
		refuse("entry %q: %w", name, err)
	}
	if f.UncompressedSize64 > uint64(max(0, a.size-offset)) {
		refuse("entry %q: its %d bytes at %d reach beyond the file of %d bytes", name, f.UncompressedSize64, offset,
			a.size)
	}
	return record{offset, int64(f.UncompressedSize64)}
}

func (a archive) read(name string) []byte {
	r := a.record(name)
	return bytesAt(a.reader, r.offset, r.size)
}

type (
	// storage is a record of the archive seen as elements of one type, a storageType a class such as
	// torch.FloatStorage.
	storage struct {
		record
		dtype    DType
		elements int64
	}
	storageType DType
	// nameless is a tensor, which gets its name from the dict that holds it.
	nameless func(name string) *Tensor
)

// persistent resolves ("storage", type, key, location, elements).
func (a archive) persistent(id any) (any, error) {
	t, ok := id.(*types.Tuple)
	if !ok || len(*t) != 5 || t.Get(0) != "storage" {
		refuse("a persistent id that is not a storage of five parts (%s)", typeName(id))
	}
	dtype, key, n := DType(argument[storageType](*t, 1)), argument[string](*t, 2), int64(argument[int](*t, 4))
	r := a.record("data/" + key)
	if n < 0 || n > r.size/dtype.Size() {
		refuse("storage %q claims %d elements of %v, its entry has %d bytes: truncated?", key, n, dtype, r.size)
	}
	return storage{record: r, dtype: dtype, elements: n}, nil
}

// rebuildTensor is _rebuild_tensor_v2(storage, storage_offset, size, stride, requires_grad, backward_hooks,
// metadata=None).
func (a archive) rebuildTensor(args types.Tuple) any {
	s, offset := argument[storage](args, 0), int64(argument[int](args, 1))
	shape, strides := integers(args, 2), integers(args, 3)
	n, err := span(shape, strides)
	if err != nil {
		refuse("a tensor of %w", err)
	}
	if all, _ := elements(shape); all > s.elements { // an expanded tensor: a few bytes could pose as terabytes
		refuse("a tensor of shape %v repeats the %d elements of its storage: save it with .contiguous()", shape,
			s.elements)
	}
	if offset < 0 || offset > s.elements || n > s.elements-offset {
		refuse("a tensor of shape %v and strides %v at offset %d reaches beyond its storage of %d elements", shape,
			strides, offset, s.elements)
	}
	return nameless(func(name string) *Tensor {
		t := &Tensor{Name: name, File: a.path, DType: s.dtype, Kind: s.dtype.String(), Shape: shape}
		size := s.dtype.Size()
		t.Load = readRange(a.reader, t, s.offset+offset*size, n*size)
		t.Part = readParts(a.reader, t, s.offset+offset*size)
		if stored := t.Load; n > 0 && !contiguous(shape, strides) {
			t.Part = nil
			t.Load = func(buffer []byte) ([]byte, error) {
				data, err := stored(nil)
				if err != nil {
					return nil, err
				}
				dense := Resize(buffer, t.Elements()*size)
				gather(dense, data, shape, strides, size)
				return dense, nil
			}
		}
		return t
	})
}

// span is the number of elements between the first and the last one addressed, both included. It refuses negative
// strides and overflow.
func span(shape, strides []int64) (int64, error) {
	n, err := elements(shape)
	if err != nil || n == 0 {
		return n, err
	}
	if len(strides) != len(shape) {
		return 0, fmt.Errorf("%d strides for %d dimensions", len(strides), len(shape))
	}
	last := int64(0)
	for i, size := range shape {
		if strides[i] < 0 || size > 1 && strides[i] > (MaxElements-1-last)/(size-1) {
			return 0, fmt.Errorf("shape %v with strides %v, which reach before its start or beyond %d elements", shape,
				strides, int64(MaxElements))
		}
		last += (size - 1) * strides[i]
	}
	return last + 1, nil
}

// contiguous reports whether strides are those of a dense row-major tensor.
func contiguous(shape, strides []int64) bool {
	want := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		if shape[i] != 1 && strides[i] != want {
			return false
		}
		want *= shape[i]
	}
	return true
}

// gather copies strided elements of the given size, at least one, into dense row-major order. It recurses once per
// dimension.
func gather(dst, src []byte, shape, strides []int64, size int64) []byte {
	if len(shape) == 0 {
		return dst[copy(dst, src[:size]):]
	}
	for i := range shape[0] {
		dst = gather(dst, src[i*strides[0]*size:], shape[1:], strides[1:], size)
	}
	return dst
}

// rebuildParameter is _rebuild_parameter(data, requires_grad, backward_hooks): the data.
func rebuildParameter(args types.Tuple) any { return argument[nameless](args, 0) }

func integers(args types.Tuple, i int) []int64 {
	list := *argument[*types.Tuple](args, i)
	out := make([]int64, len(list))
	for k := range list {
		out[k] = int64(argument[int](list, k))
	}
	return out
}
