package weights

import (
	"archive/zip"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// maxEntries bounds the storages of one archive.
const maxEntries = 1 << 18

// record is an entry's place in the file.
type record struct{ offset, size int64 }

// archive is a checked zip file: entry names are relative to the archive's one folder ("data.pkl", "data/0").
type archive struct {
	reader  io.ReaderAt
	records map[string]record
	types   map[string]DType // of the storages seen: one type each
}

// readTorch reads the state dict of torch.save's zip container. It may be wrapped as {"state_dict": …} or {"model": …};
// other values beside the tensors are ignored.
func readTorch(r io.ReaderAt, size int64, path string) (*File, error) {
	a, err := openArchive(r, size)
	if err != nil {
		return nil, err
	}
	if _, ok := a.records["byteorder"]; ok {
		order, err := a.read("byteorder")
		if err != nil {
			return nil, err
		}
		if string(order) != "little" {
			return nil, fmt.Errorf("byte order %q, only little-endian files are read", order)
		}
	}
	if _, script := a.records["constants.pkl"]; script {
		return nil, fmt.Errorf("a TorchScript program, expected a state dict")
	}
	data, err := a.read("data.pkl")
	if err != nil {
		return nil, err
	}
	root, err := loadPickle(data, pickleHost{globals: torchGlobals, persistent: a.persistent})
	if err != nil {
		return nil, fmt.Errorf("data.pkl: %w", err)
	}
	dict, err := stateDict(root)
	if err != nil {
		return nil, fmt.Errorf("data.pkl: %w", err)
	}
	f := &File{Layout: "torch.save"}
	for _, key := range dict.keys {
		name, isText := key.(string)
		v, isTensor := dict.values[key].(view)
		if !isText || !isTensor {
			continue
		}
		size := v.storage.dtype.Size()
		t := &Tensor{Name: name, File: path, DType: v.storage.dtype, Shape: v.shape, Strides: v.strides,
			Load: readRange(r, path, name, v.storage.offset+v.offset*size, v.span*size)}
		if contiguous(v.shape, v.strides) {
			t.Strides = nil
		}
		f.Tensors = append(f.Tensors, t)
	}
	return f, nil
}

// wrappers are the keys under which training programs keep the weights, in order of preference.
var wrappers = []string{"state_dict", "model_state_dict", "model", "module"}

// stateDict finds the dict that holds tensors by name: the root, or one of its wrappers.
func stateDict(root any) (*pyDict, error) {
	dict, ok := root.(*pyDict)
	if !ok {
		return nil, fmt.Errorf("holds a %s, expected a state dict", typeName(root))
	}
	// Wrappers first: beside them there may be tensors that are no weights, such as a step counter.
	for _, key := range wrappers {
		if inner, ok := dict.values[key].(*pyDict); ok && holdsTensors(inner) {
			return inner, nil
		}
	}
	if holdsTensors(dict) {
		return dict, nil
	}
	return nil, fmt.Errorf("no tensors in the dict or under its keys %s", strings.Join(wrappers, ", "))
}

func holdsTensors(d *pyDict) bool {
	return slices.ContainsFunc(d.keys, func(key any) bool { _, ok := d.values[key].(view); return ok })
}

func openArchive(r io.ReaderAt, size int64) (*archive, error) {
	if err := checkMagic(r, size); err != nil {
		return nil, err
	}
	z, err := zip.NewReader(r, size)
	if err != nil {
		return nil, fmt.Errorf("not a readable zip archive: %w", err)
	}
	if len(z.File) > maxEntries {
		return nil, fmt.Errorf("%d entries, at most %d are read", len(z.File), maxEntries)
	}
	a := &archive{reader: r, records: map[string]record{}, types: map[string]DType{}}
	folder := ""
	for i, f := range z.File {
		top, rest, ok := strings.Cut(f.Name, "/")
		if !ok || !cleanName(f.Name) || i > 0 && top != folder {
			return nil, fmt.Errorf("zip entry %q: expected clean names under one folder, as torch.save writes them",
				f.Name)
		}
		folder = top
		rec, err := recordOf(f, size)
		if err != nil {
			return nil, fmt.Errorf("zip entry %q: %w", f.Name, err)
		}
		if _, twice := a.records[rest]; twice {
			return nil, fmt.Errorf("zip entry %q appears twice", f.Name)
		}
		a.records[rest] = rec
	}
	return a, a.checkOverlaps()
}

// checkMagic tells the other things that are called .bin and .pt apart, before the zip reader's less telling errors.
func checkMagic(r io.ReaderAt, size int64) error {
	head := make([]byte, min(size, 16))
	if _, err := r.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch {
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		return nil
	case len(head) > 1 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5:
		return errors.New("a pickle without the zip container of torch 1.6 and later: load it with a trusted torch " +
			"and save it again, " +
			"best as safetensors")
	case bytes.HasPrefix(head, []byte("version https://g")):
		return errors.New("a Git LFS pointer, not the file itself: run `git lfs pull` where it came from")
	default:
		return fmt.Errorf("not a zip archive (it begins with %q)", head)
	}
}

func cleanName(name string) bool {
	return path.Clean(name) == name && !path.IsAbs(name) && !strings.HasPrefix(name, "..") && !strings.ContainsAny(name,
		"\\\x00")
}

func recordOf(f *zip.File, fileSize int64) (record, error) {
	switch {
	case f.Flags&1 != 0:
		return record{}, errors.New("is encrypted")
	case f.Method != zip.Store:
		return record{}, fmt.Errorf("is compressed (method %d); torch.save stores tensors as they are", f.Method)
	case !f.Mode().IsRegular():
		return record{}, fmt.Errorf("is not a regular file (%v)", f.Mode())
	case f.CompressedSize64 != f.UncompressedSize64:
		return record{}, fmt.Errorf("claims %d bytes stored as %d", f.UncompressedSize64, f.CompressedSize64)
	case f.UncompressedSize64 > uint64(fileSize):
		return record{}, fmt.Errorf("claims %d bytes in a file of %d", f.UncompressedSize64, fileSize)
	}
	offset, err := f.DataOffset()
	if err != nil {
		return record{}, err
	}
	size := int64(f.UncompressedSize64)
	if offset < 0 || offset > fileSize-size {
		return record{}, fmt.Errorf("its %d bytes at %d reach beyond the file of %d bytes", size, offset, fileSize)
	}
	return record{offset, size}, nil
}

func (a *archive) checkOverlaps() error {
	names := make([]string, 0, len(a.records))
	for name, r := range a.records {
		if r.size > 0 {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(x, y string) int { return cmp.Compare(a.records[x].offset, a.records[y].offset) })
	for i := 1; i < len(names); i++ {
		before, r := a.records[names[i-1]], a.records[names[i]]
		if r.offset < before.offset+before.size {
			return fmt.Errorf("zip entries %q and %q overlap", names[i-1], names[i])
		}
	}
	return nil
}

// read loads a small entry.
func (a *archive) read(name string) ([]byte, error) {
	r, ok := a.records[name]
	if !ok {
		return nil, fmt.Errorf("no entry %q: not an archive that torch.save made", name)
	}
	if r.size > maxPickle {
		return nil, fmt.Errorf("entry %q has %d bytes, at most %d are read", name, r.size, maxPickle)
	}
	data := make([]byte, r.size)
	if _, err := a.reader.ReadAt(data, r.offset); err != nil && r.size > 0 {
		return nil, fmt.Errorf("entry %q: %w", name, err)
	}
	return data, nil
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
		"collections.OrderedDict": pyFunc(func(args pyTuple) any { // the empty dict that SETITEMS fills
			if len(args) != 0 {
				refuse("OrderedDict with %d arguments, expected none", len(args))
			}
			return &pyDict{}
		}),
		"torch.Size": pyFunc(func(args pyTuple) any {
			if len(args) != 1 {
				refuse("torch.Size with %d arguments, expected 1", len(args))
			}
			integers(args[0])
			return args[0]
		}),
		"torch._utils._rebuild_tensor_v2":            pyFunc(rebuildTensor),
		"torch._utils._rebuild_parameter":            pyFunc(rebuildParameter),
		"torch._utils._rebuild_parameter_with_state": pyFunc(rebuildParameter),
	}
	for name, dtype := range map[string]DType{"Float": F32, "Half": F16, "BFloat16": BF16, "Double": F64, "Long": I64,
		"Int": I32, "Short": I16,
		"Char": I8, "Byte": U8, "Bool": Bool} {
		g["torch."+name+"Storage"] = storageType(dtype)
	}
	for d := range dtypes { // dtypes as values beside the weights
		g["torch."+DType(d).String()] = DType(d)
	}
	return g
}()

// persistent resolves ("storage", type, key, location, elements).
func (a *archive) persistent(id any) any {
	t, ok := id.(pyTuple)
	if !ok || len(t) != 5 || t[0] != "storage" {
		refuse("refused: a persistent id that is not a storage of five parts (%s)", typeName(id))
	}
	kind, ok1 := t[1].(storageType)
	key, ok2 := t[2].(string)
	n, ok3 := t[4].(int64)
	if !ok1 || !ok2 || !ok3 {
		refuse("refused: a storage described by %s, %s, %s", typeName(t[1]), typeName(t[2]), typeName(t[4]))
	}
	dtype := DType(kind)
	r, ok := a.records["data/"+key]
	if !ok {
		refuse("storage %q is not in the archive", key)
	}
	if first, seen := a.types[key]; seen && first != dtype {
		refuse("refused: storage %q is used as %v and as %v", key, first, dtype)
	}
	a.types[key] = dtype
	if n < 0 || n > MaxElements || n*dtype.Size() > r.size {
		refuse("storage %q claims %d elements of %v, its entry has %d bytes: truncated?", key, n, dtype, r.size)
	}
	return storage{record: r, dtype: dtype, elements: n}
}

// rebuildTensor is _rebuild_tensor_v2(storage, storage_offset, size, stride, requires_grad, backward_hooks,
// metadata=None).
func rebuildTensor(args pyTuple) any {
	if len(args) != 6 && len(args) != 7 {
		refuse("a tensor of %d parts, expected 6 or 7", len(args))
	}
	s, ok := args[0].(storage)
	if !ok {
		refuse("a tensor on a %s, expected a storage", typeName(args[0]))
	}
	offset, ok := args[1].(int64)
	if !ok || offset < 0 {
		refuse("a tensor at storage offset %v", args[1])
	}
	shape, strides := integers(args[2]), integers(args[3])
	reach, err := span(shape, strides)
	if err != nil {
		refuse("a tensor of %w", err)
	}
	if n, _ := elements(shape); n > s.elements { // an expanded tensor: a few bytes could pose as terabytes
		refuse("a tensor of shape %v repeats the %d elements of its storage: save it with .contiguous()", shape,
			s.elements)
	}
	if offset > s.elements || reach > s.elements-offset {
		refuse("a tensor of shape %v and strides %v at offset %d reaches beyond its storage of %d elements", shape,
			strides, offset, s.elements)
	}
	return view{storage: s, offset: offset, span: reach, shape: shape, strides: strides}
}

// rebuildParameter is _rebuild_parameter(data, requires_grad, backward_hooks): the data.
func rebuildParameter(args pyTuple) any {
	if len(args) == 0 {
		refuse("a parameter without data")
	}
	v, ok := args[0].(view)
	if !ok {
		refuse("a parameter made of a %s, expected a tensor", typeName(args[0]))
	}
	return v
}

func integers(v any) []int64 {
	t, ok := v.(pyTuple)
	if !ok || len(t) > maxDims {
		refuse("sizes or strides are a %s, expected a tuple of at most %d integers", typeName(v), maxDims)
	}
	out := make([]int64, len(t))
	for i, x := range t {
		if out[i], ok = x.(int64); !ok {
			refuse("sizes or strides hold a %s, expected integers", typeName(x))
		}
	}
	return out
}
