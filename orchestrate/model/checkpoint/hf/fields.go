package hf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
)

// fields reads keys of a JSON object with defaults, and collects what is wrong with them. null counts as absent, as
// it does in transformers, except where isNull is asked.
type fields struct {
	values map[string]json.RawMessage
	prefix string // "rope_scaling." for a nested object
	errs   *[]error
}

func parseFields(data []byte) (*fields, error) {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(data, &values); err != nil {
		return nil, fmt.Errorf("not a JSON object: %w", err)
	}
	return &fields{values: values, errs: new([]error)}, nil
}

func (f *fields) err() error { return errors.Join(*f.errs...) }

func (f *fields) refuse(key, format string, args ...any) {
	*f.errs = append(*f.errs, fmt.Errorf("%s%s: %s", f.prefix, key, fmt.Sprintf(format, args...)))
}

func (f *fields) isNull(key string) bool { return bytes.Equal(f.values[key], []byte("null")) }

// has reports whether the key is there and not null.
func (f *fields) has(key string) bool {
	_, ok := f.values[key]
	return ok && !f.isNull(key)
}

// get reads a present key; a value of another kind is refused as not what was expected.
func get[T any](f *fields, key, expected string, missing T) T {
	v := missing
	if f.has(key) && json.Unmarshal(f.values[key], &v) != nil {
		f.refuse(key, "expected %s, got %.60s", expected, f.values[key])
		return missing
	}
	return v
}

func (f *fields) number(key string, missing float64) float64 { return get(f, key, "a number", missing) }
func (f *fields) boolean(key string, missing bool) bool      { return get(f, key, "true or false", missing) }
func (f *fields) text(key, missing string) string            { return get(f, key, "a string", missing) }
func (f *fields) texts(key string) []string                  { return get[[]string](f, key, "a list of strings", nil) }

func (f *fields) integer(key string, missing int64) int64 {
	v := get(f, key, "an integer", float64(missing))
	if v != math.Trunc(v) || math.Abs(v) > 1<<53 {
		f.refuse(key, "expected an integer, got %s", f.values[key])
		return missing
	}
	return int64(v)
}

// object is a nested object, nil when absent or empty.
func (f *fields) object(key string) *fields {
	v := get[map[string]json.RawMessage](f, key, "an object", nil)
	if len(v) == 0 {
		return nil
	}
	return &fields{values: v, prefix: f.prefix + key + ".", errs: f.errs}
}

// ids reads a token id or a list of them. Negative ones (older files' "none") are dropped.
func (f *fields) ids(key string) []int64 {
	var one int64
	var many []int64
	if f.has(key) && json.Unmarshal(f.values[key], &one) == nil {
		many = []int64{one}
	} else {
		many = get[[]int64](f, key, "a token id or a list of them", nil)
	}
	return slices.DeleteFunc(many, func(id int64) bool { return id < 0 })
}

// optionalID reads one token id; absent gives the default if there is one, null gives none.
func (f *fields) optionalID(key string, hasDefault bool, missing int64) *int64 {
	if _, present := f.values[key]; !present && hasDefault {
		return &missing
	}
	if ids := f.ids(key); len(ids) > 0 {
		return &ids[0]
	}
	return nil
}
