package offline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
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
	g, err := OpenGradients(path)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	layers, err := g.Layers()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	cosines := map[string]float64{}
	for _, l := range layers {
		names = append(names, l.Name)
		cosines[l.Name] = l.Cosine(0, 1)
	}
	if got := strings.Join(names, " "); got != "embedding layer_2 layer_10 final_norm lm_head other all" ||
		g.Step != 7 {
		t.Errorf("layers %s of step %d", got, g.Step)
	}
	if c := cosines["layer_2"]; math.Abs(c-24/(5*math.Sqrt(50))) > 1e-12 || cosines["layer_10"] != -1 ||
		!math.IsNaN(cosines["final_norm"]) {
		t.Errorf("cosines %v", cosines)
	}
	if n := layers[1].Norm(1); math.Abs(n-math.Sqrt(50)) > 1e-12 || layers[1].Elements != 3 ||
		layers[1].Parameters != 2 {
		t.Errorf("layer 2: %+v", layers[1])
	}
	if total := layers[len(layers)-1]; total.Parameters != 7 { // not the one that b lacks
		t.Errorf("all: %d parameters", total.Parameters)
	}
	var picture bytes.Buffer
	if err := LayersFigure("f", "title", g.Components, layers).PNG(&picture, 40); err != nil ||
		!bytes.HasPrefix(picture.Bytes(), []byte("\x89PNG")) {
		t.Errorf("figure: %v", err)
	}
}

// Files come by the number of their step; one that cannot be read is skipped and named.
func TestOverTime(t *testing.T) {
	dir := t.TempDir()
	for step, v := range map[int]float32{10: 1, 2: -1, 1: 0} {
		save(t, filepath.Join(dir, fmt.Sprintf("gradients_step_%d.npz", step)), array("a/w", 2), array("b/w", v))
	}
	if err := os.WriteFile(filepath.Join(dir, "gradients_step_3.npz"), []byte("half"), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := OverTime(dir, "w")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.Steps, []int{1, 2, 10}) || !math.IsNaN(s.Cosines[0][0]) || s.Cosines[1][0] != -1 ||
		s.Cosines[2][0] != 1 ||
		len(s.Skipped) != 1 || !strings.Contains(s.Skipped[0], "gradients_step_3.npz") {
		t.Errorf("%+v", s)
	}
	if all, err := OverTime(dir, All); err != nil || all.Cosines[2][0] != 1 {
		t.Errorf("all: %+v, %v", all, err)
	}
	if _, err := OverTime(dir, "v"); err == nil || !strings.Contains(err.Error(), `no parameter "v"`) {
		t.Errorf("unknown parameter: %v", err)
	}
	if _, err := OverTime(t.TempDir(), "w"); err == nil {
		t.Error("an empty folder is no error")
	}
}

// The area is the share of pairs that are in order, ties counting half.
func TestAUROCIsTheShareOfPairs(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		n := 2 + rng.IntN(20)
		scores, right := make([]float64, n), make([]bool, n)
		for i := range n {
			scores[i], right[i] = float64(rng.IntN(5)), rng.IntN(2) == 0
		}
		sum, pairs := 0.0, 0.0
		for i := range n {
			for j := range n {
				if right[i] && !right[j] {
					pairs++
					if scores[i] > scores[j] {
						sum++
					} else if scores[i] == scores[j] {
						sum += 0.5
					}
				}
			}
		}
		got := AUROC(scores, right)
		if pairs == 0 {
			if !math.IsNaN(got) {
				t.Errorf("one class only: %v", got)
			}
		} else if math.Abs(got-sum/pairs) > 1e-12 {
			t.Errorf("%v %v: %v, want %v", scores, right, got, sum/pairs)
		}
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
	replies, err := ReadReplies([]string{dir})
	if err != nil || len(replies) != 8 {
		t.Fatalf("%d replies, %v", len(replies), err)
	}
	if s := replies[0].Score(3); s != -2 || replies[0].Score(1) != -1 || !math.IsNaN(replies[3].Score(5)) {
		t.Errorf("score %v", s)
	}
	list := Prefixes(replies, []int{1, 3})
	if len(list) != 4 || list[0].Step != 0 || list[3].Step != 1 || list[0].AUROC.Mean != 1 ||
		list[1].AUROC.Mean != 0.5 || list[0].AUROC.Prompts != 1 ||
		list[0].Replies != 3 || math.Abs(list[0].NLL-4.0/3) > 1e-12 || !math.IsNaN(list[0].Correlation) {
		t.Errorf("%+v", list)
	}
	pruned := Prune(replies, 1)
	if len(pruned) != 50 || pruned[0].Recall != 100 || math.Abs(pruned[49].Accuracy-100) > 1e-9 ||
		pruned[49].Saved <= 0 {
		t.Errorf("%+v ... %+v", pruned[0], pruned[len(pruned)-1])
	}
	var picture bytes.Buffer
	if err := PrefixFigure("f", replies, list, 1).PNG(&picture, 40); err != nil {
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
		if _, err := tracker.Add([]tracking.Tracked{{Step: step, Correctness: 1, Format: 0.5,
			ActualLength: 10 * step}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := tracker.Close(); err != nil {
		t.Fatal(err)
	}
	h, err := ReadHistory(filepath.Join(dir, tracking.HistoryFile))
	if err != nil {
		t.Fatal(err)
	}
	rows := h.Table().Rows
	if len(rows) != 3 || rows[2][0] != 2 || rows[2][1] != 1.0 || rows[2][4] != 20.0 {
		t.Errorf("%v", rows)
	}
	for text, want := range map[string]string{"[": "not a history", `{"steps": []}`: "no steps",
		`{"steps": [{"step": 0}]}`: "no statistics"} {
		path := filepath.Join(dir, "x.json")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadHistory(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
