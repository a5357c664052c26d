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
	s, err := Logged(run)
	if err != nil {
		t.Fatal(err)
	}
	header, rows := columns(s.Table())
	if want := []string{"step", "a_b", "a_b_low", "a_b_high", "a_c", "a_c_low", "a_c_high"}; !reflect.DeepEqual(header,
		want) {
		t.Errorf("header %v, want %v", header, want)
	}
	gap := math.NaN()
	if want := [][]any{{1, 0.5, -0.2, 0.3, -1.0, gap, gap}, {3, gap, gap, gap, 0.25, -0.1, 0.1}}; !same(rows, want) {
		t.Errorf("rows %v, want %v", rows, want)
	}
	// Without bands all pairs share a panel, and the table has a column for each.
	plain := *s
	plain.Low, plain.High = nil, nil
	header, rows = columns(plain.Table())
	if want := []string{"step", "a_b", "a_c"}; !reflect.DeepEqual(header, want) ||
		!same(rows, [][]any{{1, 0.5, -1.0}, {3, gap, 0.25}}) {
		t.Errorf("without bands %v %v", header, rows)
	}
	var banded, single bytes.Buffer
	if err := s.Figure("f", "title").PNG(&banded, 40); err != nil {
		t.Error(err)
	}
	if err := plain.Figure("f", "title").PNG(&single, 40); err != nil || bytes.Equal(banded.Bytes(), single.Bytes()) {
		t.Errorf("the figures with and without bands are the same (%v)", err)
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
	if keys := g.Keys(); len(keys) != 4 || keys[0] != "a/model.layers.0.w" {
		t.Errorf("keys %v", keys)
	}
	layers, err := g.Layers()
	if err != nil {
		t.Fatal(err)
	}
	header, rows := columns(LayersTable(g.Components, layers))
	if want := []string{"layer", "parameters", "elements", "norm_a", "norm_b", "a_b"}; !reflect.DeepEqual(header,
		want) {
		t.Errorf("header %v, want %v", header, want)
	}
	want := [][]any{{"layer_0", 1, 2, 5.0, 5.0, 0.96}, {"final_norm", 1, 2, 0.0, 13.0, math.NaN()},
		{"all", 2, 4, 5.0, math.Sqrt(194), 24 / (5 * math.Sqrt(194))}}
	if !same(rows, want) {
		t.Errorf("rows %v, want %v", rows, want)
	}
}

func TestPrefixTable(t *testing.T) {
	header, rows := columns(PrefixTable([]Prefix{{Step: 4, K: 5, Replies: 6, NLL: 1, PPL: 2,
		AUROC: Estimate{Mean: .5, Low: .25, High: .75, Prompts: 3}, Length: Estimate{Mean: .125}, Correlation: -1}}))
	got := map[string]any{}
	for i, name := range header {
		got[name] = rows[0][i]
	}
	want := map[string]any{"step": 4, "k": 5, "replies": 6, "nll": 1.0, "ppl": 2.0, "auroc": .5, "auroc_low": .25,
		"auroc_high": .75, "prompts": 3, "auroc_of_length": .125, "correlation": -1.0}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
