package offline

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"gyre/internal/table"
	"gyre/orchestrate/run/rundir"
)

// written makes a run directory with these lines of metrics.
func written(t *testing.T, lines ...string) *rundir.Run {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "metrics.jsonl"), []byte(strings.Join(lines, "\n")+"\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	run, err := rundir.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// columns are a table's names, and its rows.
func columns(t *table.Table) (names []string, rows [][]any) {
	for _, c := range t.Columns {
		names = append(names, c.Name)
	}
	return names, t.Rows
}

// same compares cells, with NaN equal to itself.
func same(got, want [][]any) bool { return fmt.Sprint(got) == fmt.Sprint(want) }

// What a run has logged of its parts' cosines is a row per step that measured any, with gaps where a pair or its band
// was not measured.
func TestLoggedCosines(t *testing.T) {
	run := written(t,
		`{"schema": 1, "step": 1, "grad_components/cosine/a/b": 0.5, "grad_components/cosine/a/b/low": -0.2, "grad_components/cosine/a/b/high": 0.3, "grad_components/cosine/a/c": -1}`,
		`{"schema": 1, "step": 2, "actor/loss": 3}`,
		`{"schema": 1, "step": 3, "grad_components/cosine/a/c": 0.25, "grad_components/cosine/a/c/low": -0.1, "grad_components/cosine/a/c/high": 0.1}`)
	r, err := Logged(run)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := r.Table.WriteCSV(&text); err != nil || text.String() != "step,a_b,a_b_low,a_b_high,a_c,a_c_low,a_c_high\n"+
		"1,0.5,-0.2,0.3,-1,,\n3,,,,0.25,-0.1,0.1\n" {
		t.Errorf("%s, %v", text.String(), err)
	}
	if people := r.Table.Text(80); !strings.Contains(people, "0.5 (by chance -0.2 to 0.3)") ||
		len(r.Figure.Panels) != 2 {
		t.Errorf("%s, %d panels", people, len(r.Figure.Panels))
	}
	if _, err := Logged(written(t, `{"schema": 1, "step": 1, "actor/loss": 3}`)); err == nil ||
		!strings.Contains(err.Error(), "[components]") {
		t.Errorf("a run without cosines: %v", err)
	}
}

// The table of layers has the norms and cosines of the file's numbers: 3-4-5 triangles.
func TestLayersTable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gradients_step_1.npz")
	save(t, path, array("a/model.layers.0.w", 3, 4), array("a/model.norm.weight", 0, 0),
		array("b/model.layers.0.w", 4, 3), array("b/model.norm.weight", 5, 12))
	g, err := OpenGradients(path)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if keys := g.Names; len(keys) != 4 || keys[0] != "a/model.layers.0.w" {
		t.Errorf("keys %v", keys)
	}
	r, err := Layers(path)
	if err != nil {
		t.Fatal(err)
	}
	header, rows := columns(r.Table)
	if want := []string{"layer", "parameters", "elements", "norm_a", "norm_b", "a_b"}; !reflect.DeepEqual(header,
		want) {
		t.Errorf("header %v, want %v", header, want)
	}
	want := [][]any{{"layer_0", 1, 2, 5.0, 5.0, 0.96}, {"final_norm", 1, 2, 0.0, 13.0, math.NaN()},
		{"all", 2, 4, 5.0, math.Sqrt(194), 24 / math.Sqrt(25*194)}}
	if !same(rows, want) {
		t.Errorf("rows %v, want %v", rows, want)
	}
}
