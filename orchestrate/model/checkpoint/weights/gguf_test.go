package weights

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"strings"
	"testing"
)

// Every quantised type, against values of the format's Python implementation, bit for bit.
func TestDequantize(t *testing.T) {
	plain := 0
	for _, k := range kinds {
		if k.decode == nil {
			plain++
			continue
		}
		raw, err := os.ReadFile("testdata/gguf/" + k.name + ".bin")
		if err != nil {
			t.Fatal(err)
		}
		const blocks = 3
		want := raw[blocks*k.size:]
		got := make([]byte, len(want))
		k.decode(got, raw[:blocks*k.size])
		for i := 0; i < len(want); i += 4 {
			if !bytes.Equal(got[i:i+4], want[i:i+4]) {
				t.Errorf("%s: value %d = %v, want %v", k.name, i/4,
					math.Float32frombits(binary.LittleEndian.Uint32(got[i:])),
					math.Float32frombits(binary.LittleEndian.Uint32(want[i:])))
				break
			}
		}
	}
	if plain != 3 {
		t.Errorf("%d plain types, want F32, F16 and BF16", plain)
	}
}

// builder writes GGUF files for the tests, also wrong ones.
type builder struct{ bytes.Buffer }

func (b *builder) put(values ...any) *builder {
	for _, v := range values {
		if s, ok := v.(string); ok {
			binary.Write(b, binary.LittleEndian, uint64(len(s)))
			b.WriteString(s)
		} else {
			binary.Write(b, binary.LittleEndian, v)
		}
	}
	return b
}

func header(version uint32, tensorCount, keys uint64) *builder {
	b := &builder{}
	b.WriteString("GGUF")
	return b.put(version, tensorCount, keys)
}

// pad fills up to the data section and adds data.
func (b *builder) pad(data int) []byte {
	b.Write(make([]byte, (32-b.Len()%32)%32+data))
	return b.Bytes()
}

func openGGUF(raw []byte) (*File, error) {
	return parse(readGGUF, bytes.NewReader(raw), int64(len(raw)), "x.gguf")
}

func u32(n uint32) uint32 { return n }
func u64(n uint64) uint64 { return n }

func TestMetadataAndTensors(t *testing.T) {
	b := header(3, 2, 8)
	b.put("a.u8", u32(0), uint8(200), "a.i8", u32(1), int8(-3), "a.f32", u32(6), float32(1e-5), "a.bool", u32(7),
		uint8(1))
	b.put("a.text", u32(8), "hé", "a.list", u32(9), u32(8), u64(2), "x", "y", "a.ints", u32(9), u32(5), u64(2),
		int32(-1), int32(7))
	b.put("a.i64", u32(11), int64(-9))
	b.put("w", u32(2), u64(32), u64(2), u32(8), u64(0)) // 2 rows of 32, Q8_0
	b.put("v", u32(1), u64(3), u32(0), u64(96))         // F32 after 68 bytes and padding
	raw := b.pad(96 + 12)
	data := raw[len(raw)-108:]
	binary.LittleEndian.PutUint16(data, 0x3c00) // scale 1 of the first block; the second is 0
	data[2+5] = 0xff
	binary.LittleEndian.PutUint32(data[96+4:], math.Float32bits(2.5))
	f, err := openGGUF(raw)
	if err != nil {
		t.Fatal(err)
	}
	m := f.GGUF
	f32, _ := m.Number("a.f32")
	list, _ := m["a.list"].([]string)
	ints, _ := m["a.ints"].([]int64)
	if m["a.u8"] != int64(200) || m["a.i8"] != int64(-3) || f32 != 1e-5 || m["a.bool"] != true || m["a.text"] != "hé" || strings.Join(list, "") != "xy" ||
		len(ints) != 2 || ints[0] != -1 || m["a.i64"] != int64(-9) {
		t.Errorf("metadata %v", m)
	}
	w, v := f.Tensors[0], f.Tensors[1]
	if w.Shape[0] != 2 || w.Shape[1] != 32 || w.Kind != "Q8_0" || w.DType != F32 || v.Kind != "float32" {
		t.Errorf("w %v %s, v %v %s", w.Shape, w.Kind, v.Shape, v.Kind)
	}
	got, err := w.Load(nil)
	if err != nil || len(got) != 4*64 || math.Float32frombits(binary.LittleEndian.Uint32(got[20:])) != -1 {
		t.Errorf("w: %d bytes, %v", len(got), err)
	}
	if got, err = v.Load(nil); err != nil || math.Float32frombits(binary.LittleEndian.Uint32(got[4:])) != 2.5 {
		t.Errorf("v: %v %v", got, err)
	}
	for cut := range len(raw) { // no prefix is a file
		if _, err := openGGUF(raw[:cut]); err == nil {
			t.Fatalf("the first %d of %d bytes open", cut, len(raw))
		}
	}
}

func TestHostileGGUF(t *testing.T) {
	one := func() *builder { return header(3, 1, 0) }
	for name, c := range map[string]struct {
		raw  []byte
		want string
	}{
		"magic":               {[]byte("GGML0000000000000000000000"), "begins with"},
		"version 1":           {header(1, 0, 0).pad(0), "version 1"},
		"big-endian":          {header(3<<24, 0, 0).pad(0), "little-endian"},
		"2^60 tensors":        {header(3, 1<<60, 0).pad(0), "truncated"},
		"2^60 keys":           {header(3, 0, 1<<60).pad(0), "truncated"},
		"key of 2^60":         {header(3, 0, 1).put(u64(1 << 60)).pad(64), "truncated"},
		"key beyond the file": {header(3, 0, 1).put(u64(1000)).pad(64), "truncated"},
		"unknown type":        {header(3, 0, 1).put("k", u32(13)).pad(64), "unknown value type 13"},
		"nested array":        {header(3, 0, 1).put("k", u32(9), u32(9), u64(1)).pad(64), "arrays of arrays"},
		"array of 2^60":       {header(3, 0, 1).put("k", u32(9), u32(0), u64(1<<60)).pad(64), "truncated"},
		"alignment 0":         {header(3, 0, 1).put("general.alignment", u32(4), u32(0)).pad(64), "expected 1 to"},
		"duplicate tensor": {header(3, 2, 0).put("w", u32(1), u64(1), u32(0), u64(0), "w", u32(1), u64(1), u32(0),
			u64(32)).pad(64), "twice"},
		"five dimensions":     {one().put("w", u32(5)).pad(64), "5 dimensions"},
		"huge dimension":      {one().put("w", u32(1), u64(1<<63), u32(0), u64(0)).pad(64), "negative size"},
		"product overflow":    {one().put("w", u32(2), u64(1<<39), u64(1<<39), u32(0), u64(0)).pad(64), "more than"},
		"unknown tensor type": {one().put("w", u32(1), u64(32), u32(16), u64(0)).pad(64), "tensor type 16"},
		"part of a block": {one().put("w", u32(2), u64(33), u64(32), u32(8), u64(0)).pad(8192),
			"whole Q8_0 blocks"},
		"beyond the end": {one().put("w", u32(1), u64(32), u32(0), u64(0)).pad(127), "truncated"},
		"offset 2^63":    {one().put("w", u32(1), u64(1), u32(0), u64(1<<63)).pad(64), "data offset"},
		"overlap": {header(3, 2, 0).put("w", u32(1), u64(16), u32(0), u64(0), "v", u32(1), u64(16), u32(0),
			u64(32)).pad(128), "overlaps"},
		"same place": {header(3, 2, 0).put("w", u32(1), u64(8), u32(0), u64(0), "v", u32(1), u64(8), u32(0),
			u64(0)).pad(128), "overlaps"},
	} {
		if _, err := openGGUF(c.raw); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v; want one with %q", name, err, c.want)
		}
	}
}

func FuzzGGUF(f *testing.F) {
	f.Add(header(3, 1, 1).put("k", u32(9), u32(8), u64(1), "x", "w", u32(2), u64(32), u64(1), u32(8), u64(0)).pad(64))
	f.Add(header(2, 1, 1).put("general.alignment", u32(4), u32(64), "w", u32(1), u64(256), u32(14), u64(0)).pad(300))
	f.Fuzz(func(t *testing.T, raw []byte) {
		file, err := openGGUF(raw)
		if err != nil {
			return
		}
		for _, x := range file.Tensors {
			data, err := x.Load(nil)
			if err != nil || int64(len(data)) != x.Elements()*x.DType.Size() {
				t.Fatalf("tensor %q: %d bytes, %v", x.Name, len(data), err)
			}
		}
	})
}
