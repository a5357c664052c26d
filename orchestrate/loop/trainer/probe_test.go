package trainer

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"testing"

	"gyre/orchestrate/config"
	"gyre/orchestrate/run/metrics"
)

const slow = "testdata/analysis"

// slowCase is what scripts/fixtures_analysis.py wrote about one case.
type slowCase struct {
	Config struct {
		Temperature, Ranks                 float64
		Mode, Advantage, Episodes, Profile string

		EntropyCoef float64 `json:"entropy_coef"`
		KLCoef      float64 `json:"kl_coef"`
		NumBuckets  int     `json:"num_buckets"`
		MiniBatch   int     `json:"mini_batch"`
		MicroBatch  int     `json:"micro_batch"`
	}
	Results map[string]struct {
		SampleCount int `json:"sample_count"`
		Tokens      int
		Norms       map[string]float64
		Losses      map[string]float64
		GroupNorms  map[string][]float64 `json:"group_norms"`
		Groups      []int
		Signal      map[string]float64 `json:"signal_sq"`
		Noise       map[string]float64 `json:"noise_sq"`
		Cosines     map[string]float64
		Blocks      map[string]map[string]float64
	}
	Pairs [][]any
}

func readSlow(t *testing.T) map[string]slowCase {
	t.Helper()
	data, err := os.ReadFile(slow + "/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]slowCase{}
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func (c slowCase) toml() string {
	return fmt.Sprintf(`
[model]
path = "%[1]s/llama"
dtype = "float32"
reference = "%[1]s/reference"
[critic]
path = "%[1]s/critic"
[[envs]]
tag = "sokoban"
groups = 8
group_size = 4
[rollout]
temperature = %[2]g
[algorithm]
advantage = %[3]q
lambda = 0.95
kl_coef = %[4]g
entropy_coef = %[5]g
[actor]
mini_batch = %[6]d
micro_batch_tokens = 30
loss_aggregation = %[7]q
[analysis]
profile = %[8]q
num_buckets = %[9]d
paper_micro_batch = %[10]d
paper_ranks = %[11]g
`, fixtures, c.Config.Temperature, c.Config.Advantage, c.Config.KLCoef, c.Config.EntropyCoef, c.Config.MiniBatch, c.Config.Mode,
		c.Config.Profile, c.Config.NumBuckets, c.Config.MicroBatch, c.Config.Ranks)
}

func probeSlow(t *testing.T, c slowCase, overrides ...string) map[string]any {
	t.Helper()
	cfg, err := config.Parse("slow.toml", []byte(c.toml()), overrides)
	if err != nil {
		t.Fatal(err)
	}
	result, err := Analyze(context.Background(), cfg, Probe{Rollouts: slow + "/" + c.Config.Episodes,
		Console: metrics.NewConsole(io.Discard)})
	if err != nil {
		t.Fatal(err)
	}
	return result.Values
}

// near compares with a slack in proportion to the value, or to the size of the terms that make it up.
func near(t *testing.T, what string, got any, want, size, relative float64) {
	t.Helper()
	v, ok := got.(float64)
	if !ok || math.Abs(v-want) > relative*math.Max(math.Abs(want), size) {
		t.Errorf("%s = %v, PyTorch has %.8g", what, got, want)
	}
}

// Both profiles arrive at what PyTorch computes the slow way: with group gradients kept, with sketches, and component
// by component.
func TestAnalysisEqualsSlowPyTorch(t *testing.T) {
	for name, want := range readSlow(t) {
		for _, mode := range []string{"analysis.low_memory=false", "analysis.memory_mib=0",
			"analysis.low_memory=true"} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				got := probeSlow(t, want, mode)
				if got["grad_analysis/profile"] != want.Config.Profile {
					t.Errorf("profile %v", got["grad_analysis/profile"])
				}
				for bucket, w := range want.Results {
					p := "grad_norm/" + bucket + "/"
					near(t, p+"sample_count", got[p+"sample_count"], float64(w.SampleCount), 0, 0)
					for c, v := range w.Norms {
						near(t, p+c, got[p+c], v, 0, 1e-4)
						near(t, p+"per_sample", got[p+"per_sample/"+c], v/float64(w.SampleCount), 0, 1e-4)
						near(t, p+"per_token", got[p+"per_token/"+c], v/float64(w.Tokens), 0, 1e-4)
					}
					for c, v := range w.Losses {
						near(t, p+"loss/"+c, got[p+"loss/"+c], v, 0.1, 1e-4)
					}
					for c, v := range w.Signal {
						size := w.Norms[c] * w.Norms[c]
						near(t, p+"signal_sq/"+c, got[p+"signal_sq/"+c], v, size, 1e-3)
						near(t, p+"noise_sq/"+c, got[p+"noise_sq/"+c], w.Noise[c], size, 1e-3)
					}
					slack := 1e-4
					if mode == "analysis.low_memory=true" {
						slack = 0.03 // a sketch's error: four times its standard deviation and more
					}
					for c, v := range w.Cosines {
						near(t, p+"cosine/"+c, got[p+"cosine/"+c], v, 1, slack)
					}
				}
				if _, found := got["grad_norm/bucket_1/per_token/kl"]; found != (want.Config.KLCoef != 0) {
					t.Error("components that are switched off must be absent, others present")
				}
				if want.Config.Profile == "exact" {
					compareTables(t, want, got, mode)
				}
			})
		}
	}
}

func compareTables(t *testing.T, want slowCase, got map[string]any, mode string) {
	t.Helper()
	type key struct {
		bucket string
		group  int
	}
	groups := got["grad_norm/group_table"].(metrics.Table)
	position := map[string]int{}
	for _, row := range groups.Rows {
		bucket := row[0].(string)
		i := position[bucket]
		position[bucket]++
		w := want.Results[bucket]
		if row[1] != w.Groups[i] {
			t.Fatalf("%s holds group %v at place %d, PyTorch has %d", bucket, row[1], i, w.Groups[i])
		}
		for c, column := range groups.Columns[4:] {
			near(t, fmt.Sprint(key{bucket, w.Groups[i]}), row[4+c], w.GroupNorms[column][i], 0, 1e-4)
		}
	}
	blocks := got["grad_norm/block_table"].(metrics.Table)
	for _, row := range blocks.Rows {
		for c, column := range blocks.Columns[2:] {
			near(t, fmt.Sprint(row[:2]), row[2+c],
				math.Sqrt(want.Results[row[0].(string)].Blocks[row[1].(string)][column]), 0, 1e-4)
		}
	}
	slack := 1e-4
	if mode != "analysis.low_memory=false" {
		slack = 0.03
	}
	cosines := got["grad_norm/cosine_table"].(metrics.Table)
	if len(cosines.Rows) != len(want.Pairs) {
		t.Fatalf("%d cosines between buckets, PyTorch has %d", len(cosines.Rows), len(want.Pairs))
	}
	for i, row := range cosines.Rows {
		if fmt.Sprint(row[:3]) != fmt.Sprint(want.Pairs[i][:3]) {
			t.Fatalf("cosine %d is of %v, PyTorch's of %v", i, row[:3], want.Pairs[i][:3])
		}
		near(t, fmt.Sprint(row[:3]), row[3], want.Pairs[i][3].(float64), 1, slack)
	}
}
