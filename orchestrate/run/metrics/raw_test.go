package metrics

import (
	"maps"
	"math"
	"testing"
)

// What is found in a line is what decoding it gives, whatever its texts say.
func TestRawFindsWhatDecodingGives(t *testing.T) {
	line, err := Encode(7, map[string]any{"a/x": 1.5, "a/y": -2e-9, "a/none": nil, "a/nan": math.NaN(),
		"a/text": `,"a/x":3,{"a/y":4}`, "b": 2.0, "note": "a/x", "zz": true,
		"a/table": Table{Columns: []string{"a/x", "a/y"}, Rows: [][]any{{5.0, 6.0}}}})
	if err != nil {
		t.Fatal(err)
	}
	got := maps.Collect(Raw(line).Numbers("a/"))
	if want := map[string]float64{"a/x": 1.5, "a/y": -2e-9}; !maps.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
	if step, ok := Raw(line).Step(); step != 7 || !ok {
		t.Errorf("step %d, %t", step, ok)
	}
	history := Raw(`{"_step": 12, "a/x": 0.5, "a/y": NaN, "_runtime": 3}`)
	if step, _ := history.Step(); step != 12 {
		t.Errorf("step of a history: %d", step)
	}
	if got := maps.Collect(history.Numbers("a/")); !maps.Equal(got, map[string]float64{"a/x": 0.5}) {
		t.Errorf("a history: %v", got)
	}
	for _, torn := range []string{"", `{"step`, `{"schema":1,"step":3,"a/x":`, `{"a/x"`} {
		if got := maps.Collect(Raw(torn).Numbers("a/")); len(got) > 0 {
			t.Errorf("%q: %v", torn, got)
		}
	}
}
