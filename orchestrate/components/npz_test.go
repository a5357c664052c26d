package components

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// numpy's own file reads as what numpy put in (testdata/numpy.npz is np.savez_compressed's), and ours reads back.
func TestNPZ(t *testing.T) {
	got, err := ReadNPZ("testdata/numpy.npz")
	if err != nil {
		t.Fatal(err)
	}
	want := []Array{{"correctness/model.norm.weight", []int64{5}, []float32{0, .25, .5, .75, 1}},
		{"format/lm_head.weight", []int64{2, 3}, []float32{0, -1, -2, -3, -4, -5}}, {"length/wide", []int64{1, 1}, []float32{.1}},
		{"total/scalar", nil, []float32{3}}}
	for i := range want {
		if got[i].Name != want[i].Name || !reflect.DeepEqual(got[i].Shape, want[i].Shape) || len(got[i].Values) != len(want[i].Values) {
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
	if err := WriteNPZ(&b, want); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := ReadNPZ(path)
	if err != nil || !reflect.DeepEqual(again, want) {
		t.Errorf("%+v, %v", again, err)
	}
}

// The header is numpy's, byte by byte.
func TestNPYHeader(t *testing.T) {
	for want, shape := range map[string][]int64{
		"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }                                                            \n": {5},
		"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }                                                          \n": {2, 3},
		"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (), }                                                              \n": nil,
	} {
		if got := string(npyHeader(shape)); got != want {
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
	if err := WriteNPZ(&own, []Array{{"a", []int64{3}, []float32{1, 2, 3}}}); err != nil {
		t.Fatal(err)
	}
	flipped := own.Bytes()
	flipped[bytes.Index(flipped, []byte{0, 0, 0x80, 0x3f})] ^= 1 // in the 1
	for name, data := range map[string][]byte{"cut": whole[:len(whole)/2], "empty": nil, "text": []byte("hello"), "flipped": flipped} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadNPZ(path); err == nil {
			t.Errorf("%s: read without an error", name)
		}
	}
}
