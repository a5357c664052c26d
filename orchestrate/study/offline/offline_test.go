package offline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gyre/internal/npz"
	"gyre/orchestrate/loop/tracking"
)

// save writes a file of gradients, keys in order.
func save(t *testing.T, path string, arrays ...npz.Array) {
	t.Helper()
	for i := range arrays {
		arrays[i].Shape = []int64{int64(len(arrays[i].Values))}
	}
	var out bytes.Buffer
	if err := npz.Write(&out, arrays); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func array(name string, values ...float32) npz.Array {
	return npz.Array{Name: name, Values: values}
}

// Layers are grouped and ordered by number, cosines are those of all their parameters together, and what is not defined
// is NaN.
func TestLayers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gradients_step_7.npz")
	save(t, path,
		array("a/model.layers.10.w", 1, 0), array("a/model.layers.2.w", 3, 4), array("a/model.layers.2.b", 0),
		array("a/model.norm.weight", 0, 0),
		array("a/lm_head.weight", 1), array("a/model.embed_tokens.weight", 2), array("a/flat", 1), array("a/only", 1),
		array("b/model.layers.10.w", -1, 0), array("b/model.layers.2.w", 4, 3), array("b/model.layers.2.b", 5),
		array("b/model.norm.weight", 1, 1),
		array("b/lm_head.weight", 2), array("b/model.embed_tokens.weight", -1), array("b/flat", 1))
	r, err := Layers(path)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	rows := map[string][]any{} // parameters, elements, norms of a and b, cosine
	for _, row := range r.Table.Rows {
		names = append(names, row[0].(string))
		rows[row[0].(string)] = row[1:]
	}
	if got := strings.Join(names, " "); got != "embedding layer_2 layer_10 final_norm lm_head other all" ||
		r.Figure.Name != "layer_similarity_step_7.png" {
		t.Errorf("layers %s in %s", got, r.Figure.Name)
	}
	cosine := func(layer string) float64 { return rows[layer][4].(float64) }
	if c := cosine("layer_2"); math.Abs(c-24/(5*math.Sqrt(50))) > 1e-12 || cosine("layer_10") != -1 ||
		!math.IsNaN(cosine("final_norm")) {
		t.Errorf("rows %v", rows)
	}
	if two := rows["layer_2"]; math.Abs(two[3].(float64)-math.Sqrt(50)) > 1e-12 || two[1] != 3 || two[0] != 2 {
		t.Errorf("layer 2: %v", two)
	}
	if total := rows["all"]; total[0] != 7 { // not the one that b lacks
		t.Errorf("all: %v", total)
	}
	var picture bytes.Buffer
	if err := r.Figure.PNG(&picture, 40); err != nil || !bytes.HasPrefix(picture.Bytes(), []byte("\x89PNG")) {
		t.Errorf("figure: %v", err)
	}
}

// Files come by the number of their step; one that cannot be read is skipped and named.
func TestParameter(t *testing.T) {
	dir := t.TempDir()
	for step, v := range map[int]float32{10: 1, 2: -1, 1: 0} {
		save(t, filepath.Join(dir, fmt.Sprintf("gradients_step_%d.npz", step)), array("a/w", 2), array("b/w", v))
	}
	if err := os.WriteFile(filepath.Join(dir, "gradients_step_3.npz"), []byte("half"), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := Parameter(dir, "w")
	if err != nil {
		t.Fatal(err)
	}
	if !same(r.Table.Rows, [][]any{{1, math.NaN()}, {2, -1.0}, {10, 1.0}}) || len(r.Skipped) != 1 ||
		!strings.Contains(r.Skipped[0], "gradients_step_3.npz") {
		t.Errorf("%+v, skipped %q", r.Table.Rows, r.Skipped)
	}
	if all, err := Parameter(dir, All); err != nil || all.Table.Rows[2][1] != 1.0 {
		t.Errorf("all: %+v, %v", all, err)
	}
	if _, err := Parameter(dir, "v"); err == nil || !strings.Contains(err.Error(), `no parameter "v"`) {
		t.Errorf("unknown parameter: %v", err)
	}
	if _, err := Parameter(t.TempDir(), "w"); err == nil {
		t.Error("an empty folder is no error")
	}
}

func TestPrefixes(t *testing.T) {
	dir := t.TempDir()
	at := func(step int, prompt string, reward float64, logprobs ...any) map[string]any {
		return map[string]any{"prompt": prompt, "uid": prompt, "reward": reward, "step": step,
			"token_log_probs": logprobs, "rollout_idx": 0}
	}
	for step := range 2 {
		list := []any{at(step, "p", 1, -1.0, nil, -3.0), at(step, "p", 0, -2.0, -2.0), at(step, "q", 1, -1.0),
			at(step, "empty", 1)}
		text, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("validation_step_%d.json", step)), text,
			0o644); err != nil {
			t.Fatal(err)
		}
	}
	replies, err := readReplies([]string{dir})
	if err != nil || len(replies) != 8 {
		t.Fatalf("%d replies, %v", len(replies), err)
	}
	if s := replies[0].Score(3); s != -2 || replies[0].Score(1) != -1 || !math.IsNaN(replies[3].Score(5)) {
		t.Errorf("score %v", s)
	}
	r, err := Perplexity([]string{dir}, []int{1, 3}, 1)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := r.Table.WriteCSV(&text); err != nil || !strings.HasPrefix(text.String(),
		"step,k,replies,nll,ppl,auroc,auroc_low,auroc_high,prompts,auroc_of_length,correlation\n0,1,3,1.333333333333333") {
		t.Errorf("%s, %v", text.String(), err)
	}
	area, _, _ := r.Table.Values("auroc")
	if rows := r.Table.Rows; len(rows) != 4 || rows[3][0] != 1 || area[0] != 1 || area[1] != 0.5 || rows[0][6] != 1 ||
		!math.IsNaN(rows[0][8].(float64)) {
		t.Errorf("%+v", rows)
	}
	pruned := prune(replies[4:], 1).Rows
	if last := pruned[len(pruned)-1]; len(pruned) != 50 || pruned[0][2] != 100.0 ||
		math.Abs(last[1].(float64)-100) > 1e-9 || last[3].(float64) <= 0 {
		t.Errorf("%+v ... %+v", pruned[0], last)
	}
	var picture bytes.Buffer
	if err := r.Figure.PNG(&picture, 40); err != nil {
		t.Error(err)
	}
}

func TestHistory(t *testing.T) {
	dir := t.TempDir()
	tracker, err := tracking.OpenTracker(dir, "m", "d", 0)
	if err != nil {
		t.Fatal(err)
	}
	for step := range 3 {
		if _, err := tracker.Add(step, []tracking.Tracked{{Correctness: 1, Format: 0.5,
			ActualLength: 10 * step}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := tracker.Flush(); err != nil {
		t.Fatal(err)
	}
	r, err := Rewards(filepath.Join(dir, tracking.HistoryFile))
	if err != nil {
		t.Fatal(err)
	}
	rows := r.Table.Rows
	if len(rows) != 3 || rows[2][0] != 2 || rows[2][1] != 1.0 || rows[2][4] != 20.0 {
		t.Errorf("%v", rows)
	}
	for text, want := range map[string]string{"[": "not a history", `{"steps": []}`: "no steps",
		`{"steps": [{"step": 0}]}`: "no statistics"} {
		path := filepath.Join(dir, "x.json")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Rewards(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
