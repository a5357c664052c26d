package torch

import (
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// headers are the files of the C ABI.
func headers(t *testing.T) map[string][]byte {
	t.Helper()
	texts := map[string][]byte{}
	for _, name := range []string{"gyre.h", "gyre_engine.h"} {
		text, err := os.ReadFile("../csrc/" + name)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = text
	}
	return texts
}

// plainName is how a field is called in C and in Go alike.
func plainName(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

// namedFields are the fields of a struct but for what cgo pads it with.
func namedFields(of reflect.Type) (fields []reflect.StructField) {
	for f := range of.NumField() {
		if name := of.Field(f).Name; name != "_" {
			fields = append(fields, of.Field(f))
		}
	}
	return fields
}

// What Go and gyre.h both declare has the same fields, types and offsets. ModelConfig and PolicyStats go on where C's
// fields end, or hold them in another form from there on.
func TestStructsLieAsThoseOfC(t *testing.T) {
	same := map[reflect.Type]int{reflect.TypeFor[ModelConfig](): 18, reflect.TypeFor[PolicyStats](): 3}
	for g, c := range mirrors {
		ofGo, ofC := namedFields(g), namedFields(c)
		n, prefix := same[g]
		if !prefix {
			if n = max(len(ofGo), len(ofC)); g.Size() != c.Size() {
				t.Errorf("%v has %d bytes, %v %d", g, g.Size(), c, c.Size())
			}
		}
		for i := range n {
			if i >= len(ofGo) || i >= len(ofC) {
				t.Errorf("%v has %d fields, %v %d", g, len(ofGo), c, len(ofC))
				break
			}
			a, b := ofGo[i], ofC[i]
			kind := a.Type.Kind() == b.Type.Kind() || a.Type.Kind() == reflect.Int && b.Type.Kind() == reflect.Int64
			if plainName(a.Name) != plainName(b.Name) || a.Offset != b.Offset || a.Type.Size() != b.Type.Size() || !kind {
				t.Errorf("field %d: %v.%s %v at %d, but %v.%s %v at %d", i, g, a.Name, a.Type, a.Offset, c, b.Name,
					b.Type, b.Offset)
			}
			if a.Type.Kind() == reflect.Struct && mirrors[a.Type] != b.Type {
				t.Errorf("%v.%s is no mirror of %v", g, a.Name, b.Type)
			}
		}
	}
}

// Of structs that are converted, each field has one of the same name on the other side, but for these: those that
// another name or another argument of the call stands for, and lengths of arrays.
func TestConvertedStructsHaveTheFieldsOfC(t *testing.T) {
	alone := map[reflect.Type]string{
		reflect.TypeFor[Batch]():          "num_sequences",
		reflect.TypeFor[PolicyInputs]():   "LogprobsOut EntropiesOut",
		reflect.TypeFor[LossConstant]():   "Default value",
		reflect.TypeFor[Request]():        "prompt_len num_stop_ids stop_string_lens num_stop_strings",
		reflect.TypeFor[Output]():         "position num_tokens token_offset Tokens Logprobs SamplingLogprobs",
		reflect.TypeFor[ShardConfig]():    "group",
		reflect.TypeFor[Shard]():          "Tensor",
		reflect.TypeFor[GroupConfig]():    "WorldSize size",
		reflect.TypeFor[InstructionSet](): "Float32 BFloat16 f32_flops bf16_flops",
	}
	for g, c := range converted {
		known := strings.Fields(alone[g])
		names := func(of reflect.Type) (all []string) {
			for _, f := range namedFields(of) {
				all = append(all, strings.TrimPrefix(f.Name, "_")) // what Go calls C's "range"
			}
			return all
		}
		lacks := func(of, other reflect.Type) {
			for _, name := range names(of) {
				same := func(o string) bool { return plainName(o) == plainName(name) }
				found := slices.ContainsFunc(names(other), same)
				switch listed := slices.Contains(known, name); {
				case !found && !listed:
					t.Errorf("%v lacks %s, which %v has", other, name, of)
				case found && listed:
					t.Errorf("%v.%s is listed as one that %v lacks, and it does not", of, name, other)
				}
			}
		}
		lacks(g, c)
		lacks(c, g)
	}
}

// The list of functions in library_linux.c is that of the headers.
func TestEveryFunctionIsLoaded(t *testing.T) {
	loader, err := os.ReadFile("library_linux.c")
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Concat(slices.Collect(maps.Values(headers(t)))...)
	declared := regexp.MustCompile(`(?m)^[a-z].*?\bgyre_(\w+)\(`).FindAllSubmatch(all, -1)
	listed := regexp.MustCompile(`F\((\w+)\)`).FindAllSubmatch(loader, -1)
	names := func(all [][][]byte) (s []string) {
		for _, m := range all {
			s = append(s, string(m[1]))
		}
		slices.Sort(s)
		return s
	}
	if a, b := names(declared), names(listed); len(a) < 60 || !slices.Equal(a, b) {
		t.Errorf("the headers declare %q\nlibrary_linux.c loads %q", a, b)
	}
}

// Every struct of the C ABI is one of those above.
func TestEveryStructOfCIsCompared(t *testing.T) {
	compared := map[string]bool{"gyre_tensor_info_t": true} // three fields, which Shape and Float32s read
	for _, pairs := range []map[reflect.Type]reflect.Type{mirrors, converted} {
		for _, c := range pairs {
			_, name, _ := strings.Cut(c.Name(), "gyre_")
			compared["gyre_"+name] = true
		}
	}
	for header, text := range headers(t) {
		structs := regexp.MustCompile(`(?ms)^typedef struct(?: \w+)? \{.*?^\} (\w+);`).FindAllSubmatch(text, -1)
		if len(structs) < 5 {
			t.Fatalf("%s has %d structs", header, len(structs))
		}
		for _, found := range structs {
			if name := string(found[1]); !compared[name] {
				t.Errorf("%s in %s is neither in mirrors nor in converted", name, header)
			}
		}
	}
}
