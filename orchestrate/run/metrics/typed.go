package metrics

import (
	"math"
	"reflect"
	"strings"
)

// Line is what is logged of one step: float64, string, Table, or nil for what does not exist in this step, by name.
type Line map[string]any

// Add puts the fields of structs on the line. A field's tag gives its name, its unit and its meaning, from which
// docs/metrics.md is made:
//
//	Gap float64           `metric:"rollout/logprob_gap_max,omitzero" unit:"nats" doc:"…"`  // absent where it is zero
//	KL  *float64          `metric:"actor/kl_loss" doc:"…"`                                // absent where it is nil
//	Len Extent            `metric:"prompt_length" doc:"…"`                                // a struct: prompt_length/mean, …
//	By  map[string]Bucket `metric:"grad_norm/{bucket}" doc:"…"`                           // the key takes the place of {bucket}
//	Of  map[string]Term   `metric:""`                                                     // or of that in the fields' names
//
// Numbers are logged as float64, true as 1. Fields without a tag are not logged; embedded structs count as their
// fields.
func (l Line) Add(structs ...any) {
	for _, s := range structs {
		walk(reflect.ValueOf(s), "", func(name string, v reflect.Value) { l[name] = value(v) })
	}
}

// Floats are the numbers of a line.
func (l Line) Floats() map[string]float64 {
	out := make(map[string]float64, len(l))
	for name, v := range l {
		if number, ok := v.(float64); ok {
			out[name] = number
		}
	}
	return out
}

// walk visits the values of a struct that are there, by their whole names.
func walk(s reflect.Value, prefix string, visit func(name string, v reflect.Value)) {
	if s.Kind() == reflect.Pointer {
		if s.IsNil() {
			return
		}
		s = s.Elem()
	}
	for i := range s.NumField() {
		f, v := s.Type().Field(i), s.Field(i)
		tag, tagged := f.Tag.Lookup("metric")
		if f.Anonymous && !tagged {
			walk(v, prefix, visit)
		}
		if !tagged {
			continue
		}
		name, omits := strings.CutSuffix(tag, ",omitzero")
		if !omits || !v.IsZero() {
			enter(v, join(prefix, name), visit)
		}
	}
}

func enter(v reflect.Value, name string, visit func(name string, v reflect.Value)) {
	switch {
	case v.Kind() == reflect.Pointer && v.IsNil():
	case v.Kind() == reflect.Pointer:
		enter(v.Elem(), name, visit)
	case v.Type() == reflect.TypeFor[Table]():
		if !v.IsZero() {
			visit(name, v)
		}
	case v.Kind() == reflect.Struct:
		walk(v, name, visit)
	case v.Kind() == reflect.Map:
		for _, key := range v.MapKeys() {
			if strings.Contains(name, "{") {
				enter(v.MapIndex(key), keyed(name, key.String()), visit)
				continue
			}
			enter(v.MapIndex(key), name, func(field string, v reflect.Value) { visit(keyed(field, key.String()), v) })
		}
	default:
		visit(name, v)
	}
}

// keyed puts a key in the place of the last {…} of a name.
func keyed(name, key string) string {
	from, to := strings.LastIndex(name, "{"), strings.LastIndex(name, "}")
	return name[:from] + key + name[to+1:]
}

func join(prefix, name string) string {
	if prefix == "" || name == "" {
		return prefix + name
	}
	return prefix + "/" + name
}

func value(v reflect.Value) any {
	if x, ok := number(v); ok {
		return x
	}
	return v.Interface()
}

// number is a metric as a number; a flag counts as 0 or 1.
func number(v reflect.Value) (x float64, ok bool) {
	switch {
	case v.CanFloat():
		return v.Float(), true
	case v.CanInt():
		return float64(v.Int()), true
	case v.Kind() == reflect.Bool:
		if v.Bool() {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// Extent is what a quantity goes from and to over a batch, and its mean.
type Extent struct {
	Mean float64 `metric:"mean"`
	Min  float64 `metric:"min"`
	Max  float64 `metric:"max"`

	sum, n float64
}

// Add takes one more value in.
func (e *Extent) Add(v float64) {
	if e.n == 0 {
		e.Min, e.Max = math.Inf(1), math.Inf(-1)
	}
	e.sum += v
	e.n++
	e.Mean, e.Min, e.Max = e.sum/e.n, math.Min(e.Min, v), math.Max(e.Max, v)
}
