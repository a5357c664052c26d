package hf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
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

// decode reads a present key into v and reports whether v now holds it.
func (f *fields) decode(key, expected string, v any) bool {
	if !f.has(key) {
		return false
	}
	if err := json.Unmarshal(f.values[key], v); err != nil {
		f.refuse(key, "expected %s, got %.60s", expected, f.values[key])
		return false
	}
	return true
}

func (f *fields) number(key string, missing float64) float64 {
	v := missing
	f.decode(key, "a number", &v)
	return v
}

func (f *fields) integer(key string, missing int64) int64 {
	v := float64(missing)
	if f.decode(key, "an integer", &v) && (v != math.Trunc(v) || math.Abs(v) > 1<<53) {
		f.refuse(key, "expected an integer, got %s", f.values[key])
		return missing
	}
	return int64(v)
}

func (f *fields) boolean(key string, missing bool) bool {
	v := missing
	f.decode(key, "true or false", &v)
	return v
}

func (f *fields) text(key, missing string) string {
	v := missing
	f.decode(key, "a string", &v)
	return v
}

func (f *fields) texts(key string) []string {
	var v []string
	f.decode(key, "a list of strings", &v)
	return v
}

// object is a nested object, nil when absent or empty.
func (f *fields) object(key string) *fields {
	var v map[string]json.RawMessage
	if !f.decode(key, "an object", &v) || len(v) == 0 {
		return nil
	}
	return &fields{values: v, prefix: f.prefix + key + ".", errs: f.errs}
}

// ids reads a token id or a list of them. Negative ones (older files' "none") are dropped.
func (f *fields) ids(key string) []int64 {
	var one int64
	var many []int64
	if !f.has(key) {
		return nil
	}
	if json.Unmarshal(f.values[key], &one) == nil {
		many = []int64{one}
	} else {
		f.decode(key, "a token id or a list of them", &many)
	}
	var kept []int64
	for _, id := range many {
		if id >= 0 {
			kept = append(kept, id)
		}
	}
	return kept
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
