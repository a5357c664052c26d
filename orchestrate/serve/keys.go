package serve

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"slices"

	"gyre/internal/nearest"
)

// Keys are parameters of requests that have no field.
type Keys struct {
	Ignored []string // mean nothing here
	// OnlyDefault may be given, but not changed: what they would do is not there.
	OnlyDefault map[string]any
}

// Decode reads a request and refuses parameters that are unknown or not supported.
func (k Keys) Decode(r *http.Request, v any) error {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	return k.Read(data, v)
}

// Read reads an object, likewise.
func (k Keys) Read(data []byte, v any) error {
	var fields map[string]json.RawMessage
	if err := decode(bytes.NewReader(data), &fields); err != nil {
		return err
	}
	var known []string
	for _, f := range reflect.VisibleFields(reflect.TypeOf(v).Elem()) {
		if tag := f.Tag.Get("json"); tag != "" {
			known = append(known, tag)
		}
	}
	for name, value := range fields {
		only, limited := k.OnlyDefault[name]
		switch {
		case string(value) == "null" || slices.Contains(known, name) || slices.Contains(k.Ignored, name):
		case limited:
			var given any
			if json.Unmarshal(value, &given) != nil || !reflect.DeepEqual(given, only) {
				return Bad(name, "%s = %.80s is not supported: leave it out", name, value)
			}
		default:
			return Bad(name, "there is no parameter %.80q%s", name, nearest.Hint(name, known))
		}
	}
	return decode(bytes.NewReader(data), v)
}
