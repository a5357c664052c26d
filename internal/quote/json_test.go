package quote

import (
	"encoding/json"
	"errors"
	"testing"
)

type columns map[string]any

// No type of Go is in a message about JSON.
func TestJSON(t *testing.T) {
	var row struct {
		N int
		I *int32
		T []struct{ X float64 }
		L [][2]float64
		S []string
		B []bool
		A []any
	}
	for text, want := range map[string]string{
		`[]`: "got array, expected an object", `{"n": "x"}`: "N: got string, expected an integer",
		`{"i": 3000000000}`:  "I: got number 3000000000, expected an integer that fits in 32 bits",
		`{"t": [{"x": []}]}`: "T.X: got array, expected a number", `{"t": 1}`: "T: got number, expected a list",
		`{"l": {}}`: "L: got object, expected a list", `{"s": 1}`: "S: got number, expected a list",
		`{"b": 1}`: "B: got number, expected a list", `{"a": 1}`: "A: got number, expected a list",
	} {
		if err := JSON(json.Unmarshal([]byte(text), &row)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	var list []columns
	if err := JSON(json.Unmarshal([]byte("{}"), &list)); err == nil || err.Error() != "got object, expected a list" {
		t.Error(err)
	}
	if other := errors.New("x"); JSON(other) != other || JSON(nil) != nil {
		t.Error("another error has changed")
	}
}
