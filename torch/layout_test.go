package torch

import (
	"reflect"
	"strings"
	"testing"
)

// What Go and gyre.h both declare has the same fields, types and offsets. ModelConfig and PolicyStats go on where C's
// fields end, or hold them in another form from there on.
func TestStructsLieAsThoseOfC(t *testing.T) {
	fields := map[reflect.Type]int{reflect.TypeFor[ModelConfig](): 24, reflect.TypeFor[PolicyStats](): 3}
	plain := func(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }
	for g, c := range mirrors {
		n, prefix := fields[g]
		if !prefix {
			if n = g.NumField(); g.Size() != c.Size() {
				t.Errorf("%v has %d bytes, %v %d", g, g.Size(), c, c.Size())
			}
		}
		var ofC []reflect.StructField
		for f := range c.NumField() {
			if name := c.Field(f).Name; name != "_" {
				ofC = append(ofC, c.Field(f))
			}
		}
		for i := range n {
			a, b := g.Field(i), ofC[min(i, len(ofC)-1)]
			same := a.Type.Kind() == b.Type.Kind() || a.Type.Kind() == reflect.Int && b.Type.Kind() == reflect.Int64
			if plain(a.Name) != plain(b.Name) || a.Offset != b.Offset || a.Type.Size() != b.Type.Size() || !same {
				t.Errorf("%v.%s %v at %d, but %s %v at %d in gyre.h", g, a.Name, a.Type, a.Offset, b.Name, b.Type,
					b.Offset)
			}
			if a.Type.Kind() == reflect.Struct && mirrors[a.Type] != b.Type {
				t.Errorf("%v.%s is no mirror of %v", g, a.Name, b.Type)
			}
		}
	}
}
