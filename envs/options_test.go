package envs

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

type sample struct {
	Flag  bool     `option:"flag" doc:"a switch"`
	Count int      `option:"count,number" doc:"how many"`
	Rate  float64  `option:"rate"`
	Name  string   `option:"name"`
	Rows  []string `option:"rows"`
	Size  [2]int   `option:"size"`
	Other int      // not an option
}

// Values come as TOML and JSON decode them, or as strings from the command line.
func TestDecode(t *testing.T) {
	want := sample{Flag: true, Count: 3, Rate: 2, Name: "x", Rows: []string{"ab", "c"}, Size: [2]int{6, 8}}
	for _, values := range []map[string]any{
		{"flag": true, "count": int64(3), "rate": int64(2), "name": "x", "rows": []any{"ab", "c"},
			"size": []any{int64(6), int64(8)}},
		{"flag": true, "number": float64(3), "rate": 2.0, "name": "x", "rows": []string{"ab", "c"},
			"size": []int{6, 8}},
		{"flag": "true", "count": "3", "rate": "2", "name": "x", "rows": "ab\nc\n", "size": "6x8"},
	} {
		var got sample
		if err := Decode(&got, values); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v: %+v, %v, want %+v", values, got, err, want)
		}
	}
}

func TestDecodeReportsEverything(t *testing.T) {
	got := sample{Count: 5}
	err := Decode(&got, map[string]any{"flg": true, "count": 1.5, "rate": "fast", "name": 3, "rows": []any{1},
		"size": "6"})
	if err == nil {
		t.Fatal("six wrong options are accepted")
	}
	for _, want := range []string{
		"option flg: unknown key (did you mean flag?)", "option count: expected an integer, got the number 1.5",
		`option rate: expected a number, got the string "fast"`, "option name: expected a string, got the integer 3",
		"option rows.0: expected a string, got the integer 1", "option size: expected a list of 2 numbers",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q:\n%v", want, err)
		}
	}
	if got.Count != 5 {
		t.Errorf("a wrong value changed the default to %d", got.Count)
	}
}

func TestOptionsListDefaults(t *testing.T) {
	list := Options(&sample{Count: 4})
	if len(list) != 6 || list[1].Name != "count" || list[1].Aliases[0] != "number" || list[1].Default != 4 ||
		list[0].Doc != "a switch" {
		t.Errorf("%+v", list)
	}
}

type still struct{ Env }

func (still) Close() error { return nil }

// Wrong values and values out of range are reported together.
func TestMakeReportsEverything(t *testing.T) {
	spec := Spec{
		Tag: "t", NewOptions: func() any { return &sample{} },
		New: func(o any) (Env, error) {
			if o.(*sample).Count < 0 {
				return nil, errors.New("option count: expected at least 0")
			}
			return still{}, nil
		},
	}
	_, err := spec.Make(map[string]any{"nme": "x", "count": -1})
	if err == nil || !strings.Contains(err.Error(), "did you mean name?") ||
		!strings.Contains(err.Error(), "at least 0") {
		t.Errorf("error %v, want both problems", err)
	}
	if env, err := spec.Make(map[string]any{"nme": "x"}); err == nil || env != nil {
		t.Errorf("%v, %v: an unknown option must not make an environment", env, err)
	}
}

// Two spellings of one option are no way to say which counts.
func TestDecodeRefusesASettingTwice(t *testing.T) {
	var got sample
	err := Decode(&got, map[string]any{"count": 1, "number": 2})
	if err == nil || !strings.Contains(err.Error(),
		`option number: "count" and "number" are the same setting: keep one`) {
		t.Errorf("got %v", err)
	}
	for _, value := range []any{"maybe", 2, nil} {
		if err := Decode(&got, map[string]any{"flag": value}); err == nil ||
			!strings.Contains(err.Error(), "option flag: expected true or false") {
			t.Errorf("flag = %v: %v", value, err)
		}
	}
}
