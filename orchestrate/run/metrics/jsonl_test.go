package metrics

import (
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func open(t *testing.T, path string) *Logger {
	t.Helper()
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func logSteps(t *testing.T, l *Logger, steps ...int) {
	t.Helper()
	for _, step := range steps {
		if err := l.Log(step, map[string]any{"actor/loss": float64(step) / 8}); err != nil {
			t.Fatal(err)
		}
	}
}

func steps(t *testing.T, path string) []int {
	t.Helper()
	var all []int
	for record, err := range Read(path) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, record.Step)
	}
	return all
}

func TestLineFormat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "metrics.jsonl")
	l := open(t, path)
	values := map[string]any{
		"b": math.NaN(), "a": 0.1, "c": math.Inf(-1), "n": 3, "name": `a "b"`, "ok": true,
		"table": Table{Columns: []string{"group", "rv"}, Rows: [][]any{{0, 0.5}, {1, math.Inf(1)}}},
	}
	if err := l.Log(4, values); err != nil {
		t.Fatal(err)
	}
	got, _ := os.ReadFile(path)
	want := `{"schema":1,"step":4,"a":0.1,"b":"NaN","c":"-Infinity","n":3,"name":"a \"b\"","ok":true,` +
		`"table":{"columns":["group","rv"],"rows":[[0,0.5],[1,"Infinity"]]}}` + "\n"
	if string(got) != want {
		t.Errorf("got  %swant %s", got, want)
	}
	for record, err := range Read(path) {
		if err != nil {
			t.Fatal(err)
		}
		if v, _ := record.Float("b"); !math.IsNaN(v) {
			t.Errorf("b read as %v, want NaN", record.Values["b"])
		}
		want := Table{Columns: []string{"group", "rv"}, Rows: [][]any{{0.0, 0.5}, {1.0, math.Inf(1)}}}
		if !reflect.DeepEqual(record.Values["table"], want) {
			t.Errorf("table read as %v, want %v", record.Values["table"], want)
		}
	}
}

func TestRefusals(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "metrics.jsonl"))
	logSteps(t, l, 1, 2)
	for name, c := range map[string]struct {
		step   int
		values map[string]any
	}{
		"step again":   {2, nil},
		"reserved":     {3, map[string]any{"step": 1}},
		"unknown type": {3, map[string]any{"x": []int{1}}},
		"ragged table": {3, map[string]any{"x": Table{Columns: []string{"a"}, Rows: [][]any{{1, 2}}}}},
	} {
		if err := l.Log(c.step, c.values); err == nil {
			t.Errorf("%s: logged without an error", name)
		}
	}
}

func TestResumeTruncatesToTheCheckpoint(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	logSteps(t, open(t, path), 0, 1, 2, 3, 4, 5)
	l, err := openUntil(path, 3)
	if err != nil {
		t.Fatal(err)
	}
	logSteps(t, l, 4)
	l.Close()
	if got, want := steps(t, path), []int{0, 1, 2, 3, 4}; !reflect.DeepEqual(got, want) {
		t.Errorf("steps %v, want %v", got, want)
	}
}

func TestTornLastLineIsRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	logSteps(t, open(t, path), 1, 2)
	whole, _ := os.ReadFile(path)
	for cut := len(whole) - 1; cut > len(whole)/2; cut-- {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		logSteps(t, open(t, path), 7)
		if got, want := steps(t, path), []int{1, 7}; !reflect.DeepEqual(got, want) {
			t.Fatalf("cut at %d: steps %v, want %v", cut, got, want)
		}
	}
}

func TestCorruptLineIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	for line, want := range map[string]string{
		`{"schema":1,"step":`: "not a JSON object", `{"schema":2,"step":1}`: "schema is 2",
		`{"schema":1}`: "step is <nil>",
	} {
		text := `{"schema":1,"step":1}` + "\n" + line + "\n" + `{"schema":1,"step":3}` + "\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(path)
		if err == nil || !strings.HasPrefix(err.Error(), path+":2: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: Open gave %v, want line 2 and %q", line, err, want)
		}
		if kept, _ := os.ReadFile(path); string(kept) != text {
			t.Errorf("%s: the file was changed", line)
		}
	}
}

func TestLastStep(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, File)
	if step := LastStep(dir); step != 0 {
		t.Errorf("without a file: %d", step)
	}
	l := open(t, path)
	for i, size := range []int{0, 10, 100_000, 3, 70_000} {
		if err := l.Log(10*i, map[string]any{"text": strings.Repeat("x", size)}); err != nil {
			t.Fatal(err)
		}
		if step := LastStep(dir); step != 10*i {
			t.Errorf("after step %d: %d", 10*i, step)
		}
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(`{"schema":1,"step":99,"torn`)
	f.Close()
	if step := LastStep(dir); step != 40 {
		t.Errorf("with a torn line: %d", step)
	}
}

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
