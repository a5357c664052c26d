package weights

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// file writes a header and data as they are and opens the result.
func openWith(t testing.TB, header string, data []byte) (*File, error) {
	t.Helper()
	raw := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return openRaw(t, append(append(raw, header...), data...))
}

func openRaw(t testing.TB, raw []byte) (*File, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.safetensors")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err == nil {
		t.Cleanup(func() { f.Close() })
	}
	return f, err
}

func TestRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.safetensors")
	fill := func(b byte) func([]byte) error {
		return func(dst []byte) error { copy(dst, bytes.Repeat([]byte{b}, len(dst))); return nil }
	}
	list := []Source{
		{Name: `a"\u00e9`, DType: F32, Shape: []int64{2, 3}, Fill: fill(1)},
		{Name: "scalar", DType: I64, Shape: nil, Fill: fill(2)},
		{Name: "empty", DType: BF16, Shape: []int64{0, 4}, Fill: fill(3)},
		{Name: "b", DType: BF16, Shape: []int64{5}, Fill: fill(4)},
	}
	if err := Write(path, list, map[string]string{"format": "pt"}); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Metadata["format"] != "pt" || len(f.Tensors) != len(list) {
		t.Fatalf("got %d tensors, metadata %v", len(f.Tensors), f.Metadata)
	}
	for _, x := range f.Tensors {
		i := map[string]int{list[0].Name: 0, "scalar": 1, "empty": 2, "b": 3}[x.Name]
		data, err := x.Load(nil)
		size := list[i].Bytes()
		if err != nil || int64(len(data)) != size || x.DType != list[i].DType ||
			fmt.Sprint(x.Shape) != fmt.Sprint(append([]int64{}, list[i].Shape...)) {
			t.Errorf("tensor %s: %v %v, %d bytes, %v", x.Name, x.DType, x.Shape, len(data), err)
		}
		for _, b := range data {
			if b != byte(i+1) {
				t.Fatalf("tensor %s holds %d, want %d", x.Name, b, i+1)
			}
		}
	}
}

func TestFailedWriteLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "w.safetensors")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("no more")
	err := Write(path, []Source{
		{Name: "a", DType: F32, Shape: []int64{1 << 16}, Fill: func([]byte) error { return nil }},
		{Name: "b", DType: F32, Shape: []int64{1}, Fill: func([]byte) error { return broken }}}, nil)
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "tensor b") {
		t.Errorf("error %v; want one that names tensor b", err)
	}
	left, _ := os.ReadDir(dir)
	if old, _ := os.ReadFile(path); string(old) != "old" || len(left) != 1 {
		t.Errorf("left behind: %v, old file now %q", left, old)
	}
}

func TestShrunkFileNamesTensor(t *testing.T) {
	f, err := openWith(t, `{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, make([]byte, 8))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(f.file.Name(), 20); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Tensors[0].Load(nil); err == nil || !strings.Contains(err.Error(), "tensor w") {
		t.Errorf("error %v; want one that names tensor w", err)
	}
}

func TestHostileHeaders(t *testing.T) {
	tensor := func(name, dtype, shape, offsets string) string {
		return fmt.Sprintf(`"%s":{"dtype":"%s","shape":%s,"data_offsets":%s}`, name, dtype, shape, offsets)
	}
	for name, c := range map[string]struct {
		header string
		data   int
		want   string
	}{
		"not an object": {`[]`, 0, "cannot unmarshal array"},
		"cut short":     {`{"a":{"dtype":"F32"`, 0, "unexpected end"},
		"text after":    {`{}{}`, 0, "after top-level value"},
		"duplicate escaped": {"{" + tensor("a", "F32", "[1]", "[0,4]") + "," + tensor(`\u0061`, "F32", "[1]",
			"[4,8]") + "}", 8, "the tensors take 4 bytes"},
		"unknown field":     {`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}}`, 4, "unknown field"},
		"missing field":     {`{"a":{"dtype":"F32","shape":[1]}}`, 0, "takes 4 bytes"},
		"unknown dtype":     {"{" + tensor("a", "F33", "[1]", "[0,4]") + "}", 4, "unknown dtype"},
		"shape overflow":    {"{" + tensor("a", "F32", "[4294967296,4294967296]", "[0,4]") + "}", 4, "more than"},
		"shape too large":   {"{" + tensor("a", "F32", "[9223372036854775808]", "[0,4]") + "}", 4, "9223372036854775808"},
		"negative size":     {"{" + tensor("a", "F32", "[-1]", "[0,4]") + "}", 4, "negative size"},
		"fractional size":   {"{" + tensor("a", "F32", "[1.0]", "[0,4]") + "}", 4, "number 1.0"},
		"nested shape":      {"{" + tensor("a", "F32", "[[1]]", "[0,4]") + "}", 4, "cannot unmarshal array"},
		"size does not fit": {"{" + tensor("a", "F32", "[2]", "[0,4]") + "}", 4, "takes 8 bytes"},
		"reversed offsets":  {"{" + tensor("a", "F32", "[1]", "[4,0]") + "}", 4, "takes 4 bytes"},
		"three offsets":     {"{" + tensor("a", "F32", "[1]", "[0,4,8]") + "}", 4, "takes 4 bytes"},
		"hole at the start": {"{" + tensor("a", "F32", "[1]", "[4,8]") + "}", 8, "the file has"},
		"hole in the middle": {"{" + tensor("a", "F32", "[1]", "[0,4]") + "," + tensor("b", "F32", "[1]", "[8,12]") +
			"}", 12, "the file has"},
		"overlap": {"{" + tensor("a", "F32", "[2]", "[0,8]") + "," + tensor("b", "F32", "[1]", "[4,8]") +
			"}", 8, "overlaps"},
		"same range twice": {"{" + tensor("a", "F32", "[1]", "[0,4]") + "," + tensor("b", "F32", "[1]", "[0,4]") +
			"}", 4, "overlaps"},
		"truncated data":    {"{" + tensor("a", "F32", "[2]", "[0,8]") + "}", 7, "truncated"},
		"trailing bytes":    {"{" + tensor("a", "F32", "[2]", "[0,8]") + "}", 9, "the file has 9 bytes"},
		"metadata not text": {`{"__metadata__":{"a":1}}`, 0, "cannot unmarshal number"},
		"deep nesting":      {`{"a":` + strings.Repeat("[", 100000), 0, "invalid character"},
	} {
		_, err := openWith(t, c.header, make([]byte, c.data))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "x.safetensors") {
			t.Errorf("%s: error %v; want one with the file and %q", name, err, c.want)
		}
	}
}

func TestHostileLengths(t *testing.T) {
	length := func(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }
	for name, c := range map[string]struct {
		raw  []byte
		want string
	}{
		"one byte":        {[]byte{1}, "too short"},
		"empty":           {nil, "too short"},
		"2^63":            {length(1 << 63), "at most"},
		"100 MB and one":  {length(maxHeader + 1), "at most"},
		"longer than all": {append(length(100), "{}"...), "truncated"},
		"zero":            {length(0), "unexpected end"},
	} {
		if _, err := openRaw(t, c.raw); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v; want %q", name, err, c.want)
		}
	}
}

// FuzzSafetensors checks that whatever opens is consistent: every tensor loads with the size its shape asks for.
func FuzzSafetensors(f *testing.F) {
	for _, header := range []string{`{}`, `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`,
		`{"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[6],"data_offsets":[2,8]}}`} {
		f.Add(append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), make([]byte, 8)...))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		file, err := parse(readSafetensors, bytes.NewReader(raw), int64(len(raw)), "x.safetensors")
		if err != nil {
			return
		}
		total := int64(0)
		for _, x := range file.Tensors {
			data, err := x.Load(nil)
			if err != nil || int64(len(data)) != x.Elements()*x.DType.Size() {
				t.Fatalf("tensor %q: %d bytes, %v", x.Name, len(data), err)
			}
			total += int64(len(data))
		}
		if total > int64(len(raw)) {
			t.Fatalf("%d bytes of tensors in a file of %d", total, len(raw))
		}
	})
}
