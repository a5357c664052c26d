package checkpoint

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gyre/orchestrate/model/checkpoint/weights"
	"gyre/torch"
)

func load(t *testing.T, dir string, head torch.Head) *torch.Model {
	t.Helper()
	m, err := LoadModel(dir, head, torch.Placement{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// checkLogits compares the logits after the last token with those transformers computed.
func checkLogits(t *testing.T, dir string, m *torch.Model, tolerance float64) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + dir + "/logits.json")
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		IDs  []int32
		Last []float64
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	got, err := m.Logits(want.IDs)
	if err != nil {
		t.Fatal(err)
	}
	got = got[len(got)-len(want.Last):]
	for i := range got {
		if math.Abs(float64(got[i])-want.Last[i]) > tolerance {
			t.Errorf("%s: logit %d = %v, transformers gives %v", dir, i, got[i], want.Last[i])
			return
		}
	}
}

func TestLoadedModelsComputeWhatTransformersDoes(t *testing.T) {
	for _, dir := range []string{"llama", "llama-sharded", "llama-bin", "llama-bin-sharded", "qwen2", "qwen3"} {
		checkLogits(t, dir, load(t, "testdata/"+dir, torch.HeadLM), 2e-5)
	}
}

func TestSaveAndLoad(t *testing.T) {
	for fixture, dtype := range map[string]torch.DType{"llama": torch.F32, "qwen2": torch.BF16, "qwen3": torch.F16} {
		source := "testdata/" + fixture
		dir := t.TempDir()
		if err := (AllWeights{source, dtype}).Save(t.Context(), load(t, source, torch.HeadLM), dir); err != nil {
			t.Fatal(err)
		}
		again := load(t, dir, torch.HeadLM)
		checkLogits(t, fixture, again, 2e-5) // nothing is lost: the fixtures are stored in these types
		before, err := ReadConfig(source)
		if err != nil {
			t.Fatal(err)
		}
		after, err := ReadConfig(dir)
		if err != nil {
			t.Fatal(err)
		}
		if before.ModelConfig != after.ModelConfig || !slices.Equal(before.EOS, after.EOS) ||
			after.DType != before.DType {
			t.Errorf("%s: configuration %+v, saved as %+v", fixture, before, after)
		}
		if _, err := os.Stat(filepath.Join(dir, "generation_config.json")); err != nil {
			t.Error(err)
		}
	}
}

func TestValueHeads(t *testing.T) {
	m, notes, err := Load("testdata/llama", torch.HeadValue, torch.Placement{}, Ranks{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if len(notes) != 1 || !strings.Contains(notes[0], "starts from zero") {
		t.Errorf("notes %v", notes)
	}
	batch := torch.Batch{Offsets: []int64{0, 3}, IDs: []int32{1, 2, 3}, Mask: []uint8{0, 1, 1}}
	if values, err := m.Values(batch); err != nil || slices.ContainsFunc(values,
		func(v float32) bool { return v != 0 }) {
		t.Errorf("values of a new head: %v, %v", values, err)
	}
	critic := load(t, "testdata/critic", torch.HeadValue)
	want, err := critic.Values(batch)
	if err != nil || want[1] == 0 {
		t.Fatalf("values %v, %v", want, err)
	}
	dir := t.TempDir()
	if err := (AllWeights{}).Save(t.Context(), critic, dir); err != nil {
		t.Fatal(err)
	}
	if got, err := load(t, dir, torch.HeadValue).Values(batch); err != nil || !slices.Equal(got, want) {
		t.Errorf("values %v after saving, %v before, %v", got, want, err)
	}
	if c, err := ReadConfig(dir); err != nil || c.Head != torch.HeadValue {
		t.Errorf("saved critic: %+v, %v", c, err)
	}
	if _, err := LoadModel(dir, torch.HeadLM, torch.Placement{}); err == nil || !strings.Contains(err.Error(),
		"extra    score.weight") {
		t.Errorf("critic as a language model: %v", err)
	}
}

func TestOptimizerState(t *testing.T) {
	m := load(t, "testdata/qwen3", torch.HeadLM)
	o, err := torch.NewOptimizer(m, torch.AdamW{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	fill := func(which torch.Moment, i int, base float32) []float32 {
		shard, err := o.Shard(which, i)
		if err != nil {
			t.Fatal(err)
		}
		s := shard.Tensor
		defer s.Close()
		values, err := s.Float32s()
		if err != nil {
			t.Fatal(err)
		}
		if base != 0 {
			for j := range values {
				values[j] = base + float32(j)
			}
			if err := s.SetFloat32s(values); err != nil {
				t.Fatal(err)
			}
		}
		return values
	}
	first, second := fill(torch.FirstMoment, 0, 1), fill(torch.SecondMoment, 3, 2)
	if err := o.SetSteps(7); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "optimizer.safetensors")
	if err := SaveOptimizer(t.Context(), path, m, o); err != nil {
		t.Fatal(err)
	}
	fill(torch.FirstMoment, 0, 100)
	fill(torch.SecondMoment, 3, 100)
	if err := o.SetSteps(0); err != nil {
		t.Fatal(err)
	}
	if err := LoadOptimizer(path, m, o); err != nil {
		t.Fatal(err)
	}
	if o.Steps() != 7 || !slices.Equal(fill(torch.FirstMoment, 0, 0), first) ||
		!slices.Equal(fill(torch.SecondMoment, 3, 0), second) {
		t.Errorf("restored: %d steps", o.Steps())
	}
	other := load(t, "testdata/llama", torch.HeadLM)
	wrong, err := torch.NewOptimizer(other, torch.AdamW{})
	if err != nil {
		t.Fatal(err)
	}
	defer wrong.Close()
	if err := LoadOptimizer(path, other, wrong); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("state of another model: %v", err)
	}
	if err := LoadOptimizer(filepath.Join(t.TempDir(), "none.safetensors"), m, o); err == nil ||
		!strings.Contains(err.Error(), "without optimizer state") {
		t.Errorf("no state: %v", err)
	}
}

func TestFloatTypesAreNumberedAlike(t *testing.T) {
	for file, memory := range map[weights.DType]torch.DType{weights.F32: torch.F32, weights.F16: torch.F16,
		weights.BF16: torch.BF16, weights.F64: torch.F64} {
		if inMemory(file) != memory || weights.DType(memory) != file || file.String() != memory.String() {
			t.Errorf("%v in files is %d, in memory %d", file, file, memory)
		}
	}
}
