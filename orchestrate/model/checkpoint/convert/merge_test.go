package convert_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gyre/orchestrate/model/checkpoint"
	"gyre/orchestrate/model/checkpoint/convert"
	"gyre/orchestrate/model/checkpoint/weights"
	"gyre/torch"
)

// fixtures are models of transformers with PEFT's adapters in lora/: scripts/fixtures_pytorch.py.
const fixtures = "../../../loop/trainer/testdata/pytorch"

// Merged models score tokens as PEFT does with the adapters beside the base; bfloat16 rounds what is merged.
func TestMergedModelsScoreLikePEFT(t *testing.T) {
	for _, name := range []string{"llama", "qwen2", "qwen3", "heads", "uneven", "patterns", "biases",
		"saved"} {
		var want struct {
			Model    string
			IDs      [][]int32
			Logprobs [][]float64
		}
		data, err := os.ReadFile(filepath.Join(fixtures, "lora", name+".json"))
		if err == nil {
			err = json.Unmarshal(data, &want)
		}
		if err != nil {
			t.Fatal(err)
		}
		for dtype, bound := range map[weights.DType][2]float64{weights.F32: {0, 1e-5}, weights.BF16: {1e-4, 0.1}} {
			dir := t.TempDir()
			done, err := convert.Merge(filepath.Join(fixtures, want.Model), filepath.Join(fixtures, "lora", name), dir,
				&dtype)
			if err != nil {
				t.Fatal(err)
			}
			if untied := len(done.Notes) == 1 && strings.Contains(done.Notes[0], "was tied"); untied != (name == "uneven" || name == "saved") ||
				untied && done.Config.TieEmbeddings {
				t.Errorf("%s: notes %q", name, done.Notes)
			}
			if worst := worstScore(t, dir, want.IDs, want.Logprobs); worst < bound[0] || worst > bound[1] {
				t.Errorf("%s as %v: log-probs differ from PEFT's by up to %.2g, expected %v", name, dtype, worst, bound)
			} else {
				t.Logf("%s as %v: at most %.2g from PEFT's log-probs", name, dtype, worst)
			}
		}
	}
}

func worstScore(t *testing.T, dir string, ids [][]int32, want [][]float64) (worst float64) {
	t.Helper()
	model, err := checkpoint.LoadModel(dir, torch.HeadLM, torch.Placement{})
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	logprobs, err := model.Logprobs(torch.Pack(ids, nil), 1)
	if err != nil {
		t.Fatal(err)
	}
	offset := 0
	for _, row := range want {
		for i := 1; i < len(row); i++ {
			worst = max(worst, math.Abs(float64(logprobs[offset+i])-row[i]))
		}
		offset += len(row)
	}
	return worst
}

// Adapters with numbers that are none are refused.
func TestDamagedAdaptersAreNotMerged(t *testing.T) {
	damaged := func(change func(data []byte)) string {
		dir := t.TempDir()
		path := filepath.Join(dir, "adapter_model.safetensors")
		err := os.CopyFS(dir, os.DirFS(filepath.Join(fixtures, "lora", "llama")))
		data, readErr := os.ReadFile(path)
		if err != nil || readErr != nil {
			t.Fatal(err, readErr)
		}
		change(data)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	for want, change := range map[string]func(data []byte){
		"number 47 is NaN or infinite":    func(data []byte) { copy(data[len(data)-4:], "\x00\x00\xc0\x7f") },
		"is NaN or infinite: the adapter": func(data []byte) { copy(data[len(data)-8:], "\x00\x00\x80\xff") },
	} {
		_, err := convert.Merge(filepath.Join(fixtures, "llama"), damaged(change), t.TempDir(), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}
