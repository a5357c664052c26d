package weights

import (
	"archive/zip"
	"bytes"
	"io"
	"strings"
)

// archive is the zip file of a torch.save: one folder with data.pkl and the records of the storages.
type archive struct {
	reader io.ReaderAt
	size   int64
	files  map[string]*zip.File
	folder string // with a slash at the end
}

// record is a file of the archive: its place in the zip file.
type record struct{ offset, size int64 }

// readTorch reads the state dict of torch.save's zip container. It may be wrapped as {"state_dict": …} or {"model": …};
// other values beside the tensors are ignored.
func readTorch(r io.ReaderAt, size int64, path string) *File {
	a := openArchive(r, size)
	if _, ok := a.files[a.folder+"byteorder"]; ok {
		if order := a.read("byteorder"); string(order) != "little" {
			refuse("byte order %q, only little-endian files are read", order)
		}
	}
	dict := stateDict(loadPickle(a.read("data.pkl"), pickleHost{globals: torchGlobals, persistent: a.persistent}))
	f := &File{Layout: "torch.save"}
	for _, name := range dict.keys {
		v, ok := dict.values[name].(view)
		if !ok {
			continue
		}
		dtype := v.storage.dtype
		t := &Tensor{Name: name, File: path, DType: dtype, Kind: dtype.String(), Shape: v.shape, Strides: v.strides}
		t.Load = readRange(r, t, v.storage.offset+v.offset*dtype.Size(), v.span*dtype.Size())
		if contiguous(v.shape, v.strides) {
			t.Strides = nil
		}
		f.Tensors = append(f.Tensors, t)
	}
	return f
}

// wrappers are the keys under which training programs keep the weights, in order of preference.
var wrappers = []string{"state_dict", "model_state_dict", "model", "module"}

// stateDict finds the dict that holds tensors by name: the root, or one of its wrappers.
func stateDict(root any) *pyDict {
	dict, ok := root.(*pyDict)
	if !ok {
		refuse("data.pkl holds a %s, expected a state dict", typeName(root))
	}
	// Wrappers first: beside them there may be tensors that are no weights, such as a step counter.
	for _, key := range wrappers {
		if inner, ok := dict.values[key].(*pyDict); ok && holdsTensors(inner) {
			return inner
		}
	}
	if !holdsTensors(dict) {
		refuse("no tensors in the dict of data.pkl or under its keys %s", strings.Join(wrappers, ", "))
	}
	return dict
}

func holdsTensors(d *pyDict) bool {
	for _, v := range d.values {
		if _, ok := v.(view); ok {
			return true
		}
	}
	return false
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

// What a checkpoint's pickle may make: a class such as torch.FloatStorage, a storage of the archive seen as elements of
// one type, and a tensor, which is a strided window on a storage.
type (
	storageType DType
	storage     struct {
		record
		dtype    DType
		elements int64
	}
	view struct {
		storage        storage
		offset, span   int64 // in elements
		shape, strides []int64
	}
)

// torchGlobals are the names that a checkpoint's pickle may refer to.
var torchGlobals = func() map[string]any {
	g := map[string]any{
		"collections.OrderedDict":                    pyFunc(func(pyTuple) any { return &pyDict{} }),
		"torch.Size":                                 pyFunc(func(args pyTuple) any { return argument[pyTuple](args, 0) }),
		"torch._utils._rebuild_tensor_v2":            pyFunc(rebuildTensor),
		"torch._utils._rebuild_parameter":            pyFunc(rebuildParameter),
		"torch._utils._rebuild_parameter_with_state": pyFunc(rebuildParameter),
	}
	for name, dtype := range map[string]DType{"Float": F32, "Half": F16, "BFloat16": BF16, "Double": F64, "Long": I64,
		"Int": I32, "Short": I16, "Char": I8, "Byte": U8, "Bool": Bool} {
		g["torch."+name+"Storage"] = storageType(dtype)
	}
	for d := range dtypes { // dtypes as values beside the weights
		g["torch."+DType(d).String()] = DType(d)
	}
	return g
}()

// argument is an argument of a call, which must be of type T.
func argument[T any](args pyTuple, i int) T {
	if i >= len(args) {
		refuse("a call with %d arguments, expected more than %d", len(args), i)
	}
	v, ok := args[i].(T)
	if !ok {
		refuse("argument %d of a call is a %s, expected a %s", i, typeName(args[i]), typeName(v))
	}
	return v
}

// persistent resolves ("storage", type, key, location, elements).
func (a archive) persistent(id any) any {
	t, ok := id.(pyTuple)
	if !ok || len(t) != 5 || t[0] != "storage" {
		refuse("a persistent id that is not a storage of five parts (%s)", typeName(id))
	}
	dtype, key, n := DType(argument[storageType](t, 1)), argument[string](t, 2), argument[int64](t, 4)
	r := a.record("data/" + key)
	if n < 0 || n > r.size/dtype.Size() {
		refuse("storage %q claims %d elements of %v, its entry has %d bytes: truncated?", key, n, dtype, r.size)
	}
	return storage{record: r, dtype: dtype, elements: n}
}

// rebuildTensor is _rebuild_tensor_v2(storage, storage_offset, size, stride, requires_grad, backward_hooks,
// metadata=None).
func rebuildTensor(args pyTuple) any {
	s, offset := argument[storage](args, 0), argument[int64](args, 1)
	shape, strides := integers(args, 2), integers(args, 3)
	reach, err := span(shape, strides)
	if err != nil {
		refuse("a tensor of %w", err)
	}
	if n, _ := elements(shape); n > s.elements { // an expanded tensor: a few bytes could pose as terabytes
		refuse("a tensor of shape %v repeats the %d elements of its storage: save it with .contiguous()", shape,
			s.elements)
	}
	if offset < 0 || offset > s.elements || reach > s.elements-offset {
		refuse("a tensor of shape %v and strides %v at offset %d reaches beyond its storage of %d elements", shape,
			strides, offset, s.elements)
	}
	return view{storage: s, offset: offset, span: reach, shape: shape, strides: strides}
}

// rebuildParameter is _rebuild_parameter(data, requires_grad, backward_hooks): the data.
func rebuildParameter(args pyTuple) any { return argument[view](args, 0) }

func integers(args pyTuple, i int) []int64 {
	list := argument[pyTuple](args, i)
	out := make([]int64, len(list))
	for k := range list {
		out[k] = argument[int64](list, k)
	}
	return out
}
