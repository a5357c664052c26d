package npz

import (
	"archive/zip"
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// numpy's own file reads as what numpy put in (testdata/numpy.npz is np.savez_compressed's), and ours reads back.
func TestNPZ(t *testing.T) {
	got, err := readAll("testdata/numpy.npz")
	if err != nil {
		t.Fatal(err)
	}
	want := []Array{{"correctness/model.norm.weight", []int64{5}, []float32{0, .25, .5, .75, 1}},
		{"format/lm_head.weight", []int64{2, 3}, []float32{0, -1, -2, -3, -4, -5}},
		{"length/wide", []int64{1, 1}, []float32{.1}},
		{"total/scalar", nil, []float32{3}}}
	for i := range want {
		if got[i].Name != want[i].Name || !reflect.DeepEqual(got[i].Shape, want[i].Shape) ||
			len(got[i].Values) != len(want[i].Values) {
			t.Fatalf("%+v, want %+v", got[i], want[i])
		}
		for j, v := range want[i].Values {
			if got[i].Values[j] != v && v != 0 { // -0
				t.Errorf("%s: %v, want %v", got[i].Name, got[i].Values, want[i].Values)
			}
		}
	}
	path := filepath.Join(t.TempDir(), "x.npz")
	var b bytes.Buffer
	if err := Write(&b, want); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := readAll(path)
	if err != nil || !reflect.DeepEqual(again, want) {
		t.Errorf("%+v, %v", again, err)
	}
}

// The header is numpy's, byte by byte.
func TestNPYHeader(t *testing.T) {
	for want, shape := range map[string][]int64{
		"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }                             " +
			"                               \n": {5},
		"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }                           " +
			"                               \n": {2, 3},
		"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (), }                               " +
			"                               \n": nil,
	} {
		if got := string(header(shape)); got != want {
			t.Errorf("%v: %q, numpy has %q", shape, got, want)
		}
	}
}

func TestNPZRefusals(t *testing.T) {
	dir := t.TempDir()
	whole, err := os.ReadFile("testdata/numpy.npz")
	if err != nil {
		t.Fatal(err)
	}
	var own bytes.Buffer
	if err := Write(&own, []Array{{"a", []int64{3}, []float32{1, 2, 3}}}); err != nil {
		t.Fatal(err)
	}
	flipped := own.Bytes()
	flipped[bytes.Index(flipped, []byte{0, 0, 0x80, 0x3f})] ^= 1 // in the 1
	for name, data := range map[string][]byte{"cut": whole[:len(whole)/2], "empty": nil, "text": []byte("hello"),
		"flipped": flipped} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readAll(path); err == nil {
			t.Errorf("%s: read without an error", name)
		}
	}
}

// Headers of version 1 are read, which is numpy's for arrays of numbers; what they say must be what follows.
func TestForeignHeaders(t *testing.T) {
	entry := func(version byte, header string, values string) string {
		length := map[byte]string{2: string([]byte{byte(len(header)), 0, 0, 0}),
			3: string([]byte{byte(len(header)), 0, 0, 0})}[version]
		if length == "" {
			length = string([]byte{byte(len(header)), 0})
		}
		return "\x93NUMPY" + string([]byte{version, 0}) + length + header + values
	}
	const f4, one = "{'descr': '<f4', 'fortran_order': False, 'shape': ", "\x00\x00\x80\x3f"
	for name, c := range map[string]struct {
		entry string
		good  bool
	}{
		"version 1": {entry(1, f4+"(1,), }", one), true}, "version 2": {entry(2, f4+"(1,), }", one), false},
		"version 0": {entry(0, f4+"(1,), }", one), false}, "version 4": {entry(4, f4+"(1,), }", one), false},
		"no values": {entry(1, f4+"(0, 3), }", ""), true}, "too few": {entry(1, f4+"(2,), }", one), false},
		"too many": {entry(1, f4+"(1,), }", one+one), false},
		"negative": {entry(1, f4+"(-1,), }", one), false}, "huge": {entry(1, f4+"(1099511627777,), }", one), false},
		"a word":        {entry(1, f4+"(x,), }", one), false},
		"columns first": {entry(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (1,), }", one), false},
		"integers":      {entry(1, "{'descr': '<i4', 'fortran_order': False, 'shape': (1,), }", one), false},
		"no shape":      {entry(1, "{'descr': '<f4', 'fortran_order': False, }", one), false},
	} {
		path := filepath.Join(t.TempDir(), "x.npz")
		var b bytes.Buffer
		archive := zip.NewWriter(&b)
		w, err := archive.Create("a.npy")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(c.entry)); err != nil {
			t.Fatal(err)
		}
		if err := archive.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readAll(path)
		if (err == nil) != c.good || c.good && len(got[0].Values) == 1 && got[0].Values[0] != 1 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// readAll reads all arrays of a file.
func readAll(path string) (arrays []Array, err error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for _, name := range f.Names {
		a, err := f.Read(name)
		if err != nil {
			return nil, err
		}
		arrays = append(arrays, a)
	}
	return arrays, nil
}
