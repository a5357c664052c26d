package weights

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
)

// values loads a tensor as float64, dense.
func values(t *testing.T, x *Tensor) []float64 {
	t.Helper()
	data, _, err := x.Dense(F64, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float64, len(data)/8)
	for i := range out {
		out[i] = math.Float64frombits(binary.LittleEndian.Uint64(data[8*i:]))
	}
	return out
}

func TestLayouts(t *testing.T) {
	count := func(n int, scale float64) []float64 {
		out := make([]float64, n)
		for i := range out {
			out[i] = float64(i) * scale
		}
		return out
	}
	transposed := make([]float64, 0, 24)
	for c := range 6 {
		for r := range 4 {
			transposed = append(transposed, float64(6*r+c))
		}
	}
	want := map[string][]float64{
		"dense": count(24, 1), "transposed": transposed, "window": {8, 9, 10, 14, 15, 16}, "scalar": {7.5},
		"half": count(6, .25), "brain": count(6, .25), "double": count(6, .25), "parameter": {3, 3, 3, 3},
	}
	for _, name := range []string{"plain.pt", "protocol4.pt", "wrapped.pt"} {
		f, err := Open("testdata/torch/" + name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if len(f.Tensors) != len(want)+1 {
			t.Errorf("%s: %d tensors, want %d", name, len(f.Tensors), len(want)+1)
		}
		for _, x := range f.Tensors {
			if x.Name == "count" {
				if x.DType != I64 {
					t.Errorf("%s: count is %v", name, x.DType)
				}
				continue
			}
			if got := values(t, x); fmt.Sprint(got) != fmt.Sprint(want[x.Name]) {
				t.Errorf("%s: %s %v %v = %v, want %v", name, x.Name, x.DType, x.Shape, got, want[x.Name])
			}
		}
	}
	f, err := Open("testdata/torch/module.pt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if len(f.Tensors) != 2 {
		t.Errorf("module.pt: %d tensors, want 2", len(f.Tensors))
	}
}

func TestRefusedFiles(t *testing.T) {
	for name, want := range map[string]string{
		"legacy.pt":       "without the zip container",
		"whole_module.pt": `refers to "torch.nn.modules.linear.Linear"`,
	} {
		_, err := Open("testdata/torch/" + name)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v; want one with %q", name, err, want)
		}
	}
	if _, err := Open("testdata/torch"); err == nil {
		t.Error("a directory opens")
	}
}

type zipEntry struct {
	header zip.FileHeader
	data   string
}

func store(name, data string) zipEntry {
	return zipEntry{zip.FileHeader{Name: name, Method: zip.Store}, data}
}

func archiveOf(t testing.TB, entries ...zipEntry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range entries {
		out, err := w.CreateHeader(&e.header)
		if err == nil {
			_, err = out.Write([]byte(e.data))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func short(s string) string {
	return "X" + string(binary.LittleEndian.AppendUint32(nil, uint32(len(s)))) + s
}

func long(n int64) string {
	return "\x8a\x08" + string(binary.LittleEndian.AppendUint64(nil, uint64(n)))
}

// pickleOf makes {"w": tensor} on a storage, with the given numbers.
func pickleOf(kind string, key string, elements, offset int64, shape, strides []int64) string {
	tuple := func(list []int64) string {
		s := "("
		for _, n := range list {
			s += long(n)
		}
		return s + "t"
	}
	return "\x80\x02}" + short("w") + "ctorch._utils\n_rebuild_tensor_v2\n(" +
		"(" + short("storage") + "ctorch\n" + kind + "\n" + short(key) + short("cpu") + long(elements) + "tQ" +
		long(offset) + tuple(shape) + tuple(strides) + "\x89ccollections\nOrderedDict\n)RtRs."
}

func TestStorageLies(t *testing.T) {
	two := []int64{2, 2}
	for name, c := range map[string]struct {
		pickle string
		want   string // "" = opens
	}{
		"honest":                  {pickleOf("FloatStorage", "0", 4, 0, two, []int64{2, 1}), ""},
		"more elements than data": {pickleOf("FloatStorage", "0", 5, 0, two, []int64{2, 1}), "claims 5 elements"},
		"another type":            {pickleOf("DoubleStorage", "0", 4, 0, two, []int64{2, 1}), "claims 4 elements"},
		"negative elements":       {pickleOf("FloatStorage", "0", -1, 0, two, []int64{2, 1}), "claims -1"},
		"elements overflow":       {pickleOf("FloatStorage", "0", 1<<62+1, 0, two, []int64{2, 1}), "claims"},
		"offset beyond":           {pickleOf("FloatStorage", "0", 4, 1, two, []int64{2, 1}), "beyond its storage"},
		"offset negative":         {pickleOf("FloatStorage", "0", 4, -1, two, []int64{2, 1}), "at offset -1"},
		"offset overflow": {pickleOf("FloatStorage", "0", 4, math.MaxInt64, two, []int64{2, 1}),
			"beyond its storage"},
		"shape overflow":  {pickleOf("FloatStorage", "0", 4, 0, []int64{1 << 32, 1 << 32}, two), "more than"},
		"shape negative":  {pickleOf("FloatStorage", "0", 4, 0, []int64{-2, -2}, two), "negative size"},
		"expanded":        {pickleOf("FloatStorage", "0", 4, 0, []int64{1 << 20, 1 << 19}, []int64{0, 0}), "repeats"},
		"stride beyond":   {pickleOf("FloatStorage", "0", 4, 0, two, []int64{3, 1}), "beyond its storage"},
		"stride negative": {pickleOf("FloatStorage", "0", 4, 3, two, []int64{-2, -1}), "before its start"},
		"stride overflow": {pickleOf("FloatStorage", "0", 4, 0, two, []int64{math.MaxInt64, 1}), "beyond"},
		"unequal lengths": {pickleOf("FloatStorage", "0", 4, 0, two, []int64{1}), "1 strides for 2"},
		"absent storage":  {pickleOf("FloatStorage", "1", 4, 0, two, []int64{2, 1}), "no entry"},
		"storage by path": {pickleOf("FloatStorage", "../data.pkl", 4, 0, two, []int64{2, 1}),
			"no entry"},
		"unknown storage": {pickleOf("QInt8Storage", "0", 4, 0, two, []int64{2, 1}), "torch.QInt8Storage"},
		"no tensors":      {"\x80\x02}.", "no tensors"},
		"a list":          {"\x80\x02].", "expected a state dict"},
	} {
		raw := archiveOf(t, store("m/data.pkl", c.pickle), store("m/byteorder", "little"), store("m/data/0",
			strings.Repeat("\x00", 16)))
		list, err := parse(readTorch, bytes.NewReader(raw), int64(len(raw)), "m.pt")
		if c.want == "" {
			if err != nil || len(list.Tensors) != 1 {
				t.Errorf("%s: %v", name, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v; want one with %q", name, err, c.want)
		}
	}
}

func TestHostileArchives(t *testing.T) {
	good := store("m/data.pkl", pickleOf("FloatStorage", "0", 4, 0, []int64{4}, []int64{1}))
	data := store("m/data/0", strings.Repeat("\x00", 16))
	deflated := store("m/data/0", strings.Repeat("\x00", 1<<20))
	deflated.header.Method = zip.Deflate
	for name, c := range map[string]struct {
		entries []zipEntry
		want    string
	}{
		"bomb":          {[]zipEntry{good, deflated}, "compressed"},
		"empty pickle":  {[]zipEntry{store("data.pkl", "")}, "not a pickle"},
		"no pickle":     {[]zipEntry{data}, "data.pkl"},
		"big-endian":    {[]zipEntry{good, data, store("m/byteorder", "big")}, "byte order"},
		"empty archive": {nil, "not a zip archive"},
	} {
		raw := archiveOf(t, c.entries...)
		if _, err := parse(readTorch, bytes.NewReader(raw), int64(len(raw)), "m.pt"); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v; want one with %q", name, err, c.want)
		}
	}
}

// Lies in the central directory: sizes and offsets that reach beyond the file or into other entries.
func TestDirectoryLies(t *testing.T) {
	raw := archiveOf(t, store("m/data.pkl", pickleOf("FloatStorage", "0", 4, 0, []int64{4}, []int64{1})),
		store("m/data/0", strings.Repeat("\x00", 16)))
	at := bytes.LastIndex(raw, []byte("PK\x01\x02")) // the directory entry of m/data/0
	patch := func(offset int, value uint32) []byte {
		out := bytes.Clone(raw)
		binary.LittleEndian.PutUint32(out[at+offset:], value)
		return out
	}
	sizes := func(n uint32) []byte {
		out := patch(20, n)
		binary.LittleEndian.PutUint32(out[at+24:], n)
		return out
	}
	for name, bad := range map[string][]byte{
		"stored larger":    patch(24, 1<<30),
		"both larger":      sizes(1 << 20),
		"slightly larger":  sizes(uint32(len(raw))),
		"beyond the file":  patch(42, 1<<30),
		"zip64 marker":     patch(24, math.MaxUint32),
		"truncated":        raw[:len(raw)-30],
		"cut in the data":  raw[:60],
		"only local magic": []byte("PK\x03\x04"),
	} {
		if _, err := parse(readTorch, bytes.NewReader(bad), int64(len(bad)), "m.pt"); err == nil {
			t.Errorf("%s: opens", name)
		}
	}
}

func FuzzTorch(f *testing.F) {
	for _, name := range []string{"plain.pt", "wrapped.pt", "module.pt", "protocol4.pt"} {
		raw, err := os.ReadFile("testdata/torch/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add(archiveOf(f, store("m/data.pkl", pickleOf("FloatStorage", "0", 4, 0, []int64{2, 2}, []int64{1, 2})),
		store("m/data/0", strings.Repeat("\x00", 16))))
	f.Fuzz(func(t *testing.T, raw []byte) {
		list, err := parse(readTorch, bytes.NewReader(raw), int64(len(raw)), "m.pt")
		if err != nil {
			return
		}
		for _, x := range list.Tensors {
			if x.Elements()*x.DType.Size() > int64(len(raw)) {
				t.Fatalf("tensor %s %v in a file of %d bytes", x.Name, x.Shape, len(raw))
			}
			if !x.DType.Float() {
				continue
			}
			if _, _, err := x.Dense(F32, nil, nil); err != nil && !strings.Contains(err.Error(), ".contiguous()") {
				t.Fatal(err)
			}
		}
	})
}
