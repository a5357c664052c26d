package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gyre/orchestrate/model/checkpoint/convert"
	"gyre/orchestrate/model/checkpoint/hf"
	"gyre/orchestrate/model/checkpoint/peft"
	"gyre/orchestrate/model/checkpoint/weights"
	"gyre/torch"
)

// familyCase is what transformers computes with a tiny checkpoint (scripts/fixtures_families.py).
type familyCase struct {
	Longest   int64
	IDs       [][]int32
	Logprobs  [][]float64
	Gradients map[string][2]float64 // of a tensor of the file: norm, product with sin(1), sin(2), …

	Balance          float64               // of a mixture's routers, summed over tokens; 0: it is none
	BalanceGradients map[string][2]float64 `json:"balance_gradients"`
}

func eachFamily(t *testing.T, run func(t *testing.T, dir string, cases []familyCase)) {
	dirs, err := filepath.Glob("testdata/families/*")
	if err != nil || len(dirs) < 19 {
		t.Fatalf("fixtures %v, %v", dirs, err)
	}
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(dir, "expected.json"))
			if err != nil {
				t.Fatal(err)
			}
			var cases []familyCase
			if err := json.Unmarshal(text, &cases); err != nil {
				t.Fatal(err)
			}
			run(t, dir, cases)
		})
	}
}

func compareLogprobs(t *testing.T, m *torch.Model, c familyCase, tolerance float64) {
	t.Helper()
	logprobs, err := m.Logprobs(torch.Pack(c.IDs, nil), 1)
	if err != nil {
		t.Fatal(err)
	}
	worst := 0.0
	for i, want := range slices.Concat(c.Logprobs...) {
		if want != 0 { // the first of a sequence is not predicted
			worst = max(worst, math.Abs(float64(logprobs[i])-want))
		}
	}
	if !(worst < tolerance) {
		t.Errorf("log-probs differ by up to %.2g from transformers'", worst)
	}
}

func TestFamiliesComputeWhatTransformersDoes(t *testing.T) {
	for _, device := range []string{"cpu", "aten"} {
		eachFamily(t, func(t *testing.T, dir string, cases []familyCase) {
			for _, c := range cases {
				m, err := LoadModel(dir, torch.HeadLM, torch.Placement{Device: device, Longest: c.Longest})
				if c.Balance != 0 && device != "cpu" {
					if err == nil || !strings.Contains(err.Error(), "experts") {
						t.Errorf("on %s: %v", device, err)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				compareLogprobs(t, m, c, 1e-5)
				nll := torch.PolicyLoss{Task: torch.NewLoss("nll", nil), Temperature: 1, BalanceCoef: 1}
				compareGradients(t, dir, m, c.Gradients, c.IDs, nll, torch.TermTask)
				if c.Balance != 0 {
					value := compareGradients(t, dir, m, c.BalanceGradients, c.IDs, nll, torch.TermBalance)
					if !(math.Abs(value-c.Balance) < 1e-5*c.Balance) {
						t.Errorf("balance %v, transformers' routers give %v", value, c.Balance)
					}
				}
				m.Close()
			}
		})
	}
}

// compareGradients compares those of a term of the loss and returns its value.
func compareGradients(t *testing.T, dir string, m *torch.Model, all map[string][2]float64, ids [][]int32,
	loss torch.PolicyLoss, kind torch.TermKind) float64 {
	t.Helper()
	sums, value := familyGradients(t, dir, m, ids, loss, kind)
	for name, got := range sums {
		want, ok := all[name]
		for i := range want {
			// Of the bias of keys without rotations there is no gradient.
			if !ok || !(math.Abs(got[i]-want[i]) <= 1e-4*want[0]+1e-5) {
				t.Errorf("gradient of %s: %v, transformers gives %v", name, got, want)
			}
		}
	}
	return value
}

// familyGradients are those of a term's sum over tokens, by the names and in the shapes of files: saved as a model.
func familyGradients(t *testing.T, dir string, m *torch.Model, ids [][]int32, loss torch.PolicyLoss,
	kind torch.TermKind) (map[string][2]float64, float64) {
	t.Helper()
	config, err := hf.ReadConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	return gradientSums(t, m, ids, loss, kind, "model.safetensors", func(out string, list []weights.Source) error {
		return hf.Save(out, config, list, hf.ShardSize)
	})
}

func gradientSums(t *testing.T, m *torch.Model, ids [][]int32, loss torch.PolicyLoss, kind torch.TermKind, name string,
	save func(dir string, list []weights.Source) error) (map[string][2]float64, float64) {
	t.Helper()
	g, err := torch.NewGradients(m)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	ones := slices.Repeat([]float32{1}, len(slices.Concat(ids...)))
	stats, err := m.PolicyBackward(torch.Pack(ids, nil), torch.PolicyInputs{Weights: ones}, loss,
		[]torch.Term{{Name: "term", Kind: kind, Into: g}})
	if err != nil {
		t.Fatal(err)
	}
	parameters, err := m.Parameters()
	if err != nil {
		t.Fatal(err)
	}
	defer torch.CloseParameters(parameters)
	var list []weights.Source
	for i, p := range parameters {
		shape, err := p.Tensor.Shape()
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, weights.Source{Name: p.Name, DType: weights.F32, Shape: shape,
			Fill: func(dst []byte) error {
				gradient, err := g.Tensor(i)
				if err != nil {
					return err
				}
				defer gradient.Close()
				return gradient.CopyOut(torch.F32, dst)
			}})
	}
	out := t.TempDir()
	if err := save(out, list); err != nil {
		t.Fatal(err)
	}
	file, err := weights.Open(filepath.Join(out, name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	sums := map[string][2]float64{}
	for _, tensor := range file.Tensors {
		data, err := tensor.Load(nil)
		if err != nil {
			t.Fatal(err)
		}
		var squares, product float64
		for k := range len(data) / 4 {
			v := float64(math.Float32frombits(binary.LittleEndian.Uint32(data[4*k:])))
			squares += v * v
			product += v * math.Sin(float64(k+1))
		}
		sums[tensor.Name] = [2]float64{math.Sqrt(squares), product}
	}
	return sums, stats.Terms["term"].Value
}

// savedFamily is a directory to save in, which fixtures_families.py --check may read afterwards.
func savedFamily(t *testing.T, name string) string {
	keep := os.Getenv("GYRE_SAVED_FAMILIES")
	if keep == "" {
		return t.TempDir()
	}
	if err := os.MkdirAll(filepath.Join(keep, name), 0o755); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(keep, name)
}

// A saved model has the tensors and the keys of the one that was loaded.
func TestFamiliesAreSavedAsTheyWereRead(t *testing.T) {
	eachFamily(t, func(t *testing.T, dir string, cases []familyCase) {
		m := load(t, dir, torch.HeadLM)
		saved := savedFamily(t, filepath.Base(dir))
		if err := (AllWeights{dir, torch.BF16}).Save(t.Context(), m, saved); err != nil {
			t.Fatal(err)
		}
		content := func(dir string) map[string]string {
			file, err := weights.Open(filepath.Join(dir, "model.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			all := map[string]string{}
			for _, tensor := range file.Tensors {
				data, err := tensor.Load(nil)
				if err != nil {
					t.Fatal(err)
				}
				all[tensor.Name] = string(data)
			}
			return all
		}
		want, got := content(dir), content(saved)
		for name := range want {
			if got[name] != want[name] {
				t.Errorf("tensor %s is not what was read", name)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%d tensors, read %d", len(got), len(want))
		}
		if cases[0].Longest == 0 {
			compareLogprobs(t, load(t, saved, torch.HeadLM), cases[0], 1e-5)
		}
	})
}

// Sampling is training bit for bit: what the engine drew has the log-probs that the trainer computes.
func TestFamiliesSampleWhatTheyTrain(t *testing.T) {
	eachFamily(t, func(t *testing.T, dir string, cases []familyCase) {
		for _, compute := range []torch.Compute{torch.ComputeF32, torch.ComputeBF16} {
			m, err := LoadModel(dir, torch.HeadLM, torch.Placement{Compute: compute, Longest: cases[0].Longest})
			if err != nil {
				t.Fatal(err)
			}
			engine, err := torch.NewEngine(m, torch.EngineConfig{KVBytes: 1 << 20, MaxSequences: 8, MaxLength: 30, MaxBatchTokens: 17})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 6 {
				if err := engine.Submit(torch.Request{ID: uint64(i), Prompt: cases[0].IDs[0][:1+3*i],
					Sampling: torch.Sampling{MaxTokens: 12, Temperature: 1, TopP: 1, Seed: uint64(i)}}); err != nil {
					t.Fatal(err)
				}
			}
			compareDrawn(t, engine, m, cases[0].IDs[0])
			engine.Close()
			m.Close()
		}
	})
}

func compareDrawn(t *testing.T, engine *torch.Engine, m *torch.Model, prompt []int32) {
	t.Helper()
	for unfinished := 1; unfinished > 0; {
		var err error
		if unfinished, err = engine.Step(); err != nil {
			t.Fatal(err)
		}
		outputs, err := engine.Poll()
		if err != nil {
			t.Fatal(err)
		}
		for _, out := range outputs {
			ids := slices.Concat(prompt[:1+3*out.ID], out.Tokens)
			logprobs, err := m.Logprobs(torch.Pack([][]int32{ids}, nil), 1)
			if err != nil {
				t.Fatal(err)
			}
			if got := logprobs[1+3*out.ID:]; !slices.Equal(got, out.Logprobs) {
				t.Errorf("%v drawn with log-probs %v, the trainer has %v", out.Tokens, out.Logprobs, got)
			}
		}
	}
}

// A sequence beyond the switch of a rotary scaling is refused.
func TestRotaryScalingsBySequenceLength(t *testing.T) {
	for dir, limit := range map[string]int64{"phi3": 32, "qwen2": 32} {
		m := load(t, "testdata/families/"+dir, torch.HeadLM)
		if m.Config.MaxPositions != limit {
			t.Errorf("%s: %d positions, expected %d", dir, m.Config.MaxPositions, limit)
		}
		_, err := m.Logprobs(torch.Pack([][]int32{make([]int32, limit+1)}, nil), 1)
		if err == nil || !strings.Contains(err.Error(), "max_position_embeddings") {
			t.Errorf("%s: a sequence of %d tokens: %v", dir, limit+1, err)
		}
	}
}

// Rows of experts are dealt to threads in other ways where there are more of them: it changes no bit.
func TestMixturesAreTheSameBitsOnAnyThreads(t *testing.T) {
	defer torch.SetThreads(torch.Threads())
	eachFamily(t, func(t *testing.T, dir string, cases []familyCase) {
		c := cases[0]
		if c.Balance == 0 {
			return
		}
		for _, compute := range []torch.Compute{torch.ComputeF32, torch.ComputeBF16} {
			m, err := LoadModel(dir, torch.HeadLM, torch.Placement{Compute: compute})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			var first map[string][2]float64
			var scored []float32
			for threads := 1; threads <= 4; threads++ {
				if err := torch.SetThreads(threads); err != nil {
					t.Fatal(err)
				}
				logprobs, err := m.Logprobs(torch.Pack(c.IDs, nil), 1)
				if err != nil {
					t.Fatal(err)
				}
				sums, _ := familyGradients(t, dir, m, c.IDs, torch.PolicyLoss{Task: torch.NewLoss("nll", nil),
					Temperature: 1}, torch.TermTask)
				if threads == 1 {
					first, scored = sums, logprobs
				}
				if !maps.Equal(sums, first) || !slices.Equal(logprobs, scored) {
					t.Errorf("%d threads: other bits than of one", threads)
				}
			}
		}
	})
}

// Of experts that the router likes equally well the first compute a token.
func TestTiesInRoutingGoToTheFirst(t *testing.T) {
	m := load(t, "testdata/families/olmoe", torch.HeadLM) // 3 of 7 experts
	parameters, err := m.Parameters()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parameters {
		if strings.HasSuffix(p.Name, "mlp.gate.weight") {
			if err := p.Tensor.CopyIn(torch.F32, []int64{7, 24}, make([]byte, 4*7*24)); err != nil {
				t.Fatal(err)
			}
		}
	}
	torch.CloseParameters(parameters)
	if err := m.Touch(); err != nil {
		t.Fatal(err)
	}
	sums, _ := familyGradients(t, "testdata/families/olmoe", m, [][]int32{{5, 9, 7, 7, 12}}, torch.PolicyLoss{
		Task: torch.NewLoss("nll", nil), Temperature: 1}, torch.TermTask)
	for name, sum := range sums {
		if _, rest, found := strings.Cut(name, ".experts."); found && (sum[0] != 0) != (rest[0] < '3') {
			t.Errorf("%s has a gradient of norm %v", name, sum[0])
		}
	}
}

// Adapters of experts are PEFT's: what they compute, their gradients and their files. They sample what they train, in
// any batch and on any threads.
func TestAdaptersOfExpertsComputeWhatPEFTDoes(t *testing.T) {
	defer torch.SetThreads(torch.Threads())
	eachFamily(t, func(t *testing.T, dir string, cases []familyCase) {
		if cases[0].Balance == 0 {
			return
		}
		lora := filepath.Join(dir, "lora")
		text, err := os.ReadFile(filepath.Join(lora, "expected.json"))
		if err != nil {
			t.Fatal(err)
		}
		var want familyCase
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		config, err := hf.ReadConfig(dir)
		if err != nil {
			t.Fatal(err)
		}
		set, err := OpenAdapter(lora, dir, config)
		if err != nil {
			t.Fatal(err)
		}
		for _, compute := range []torch.Compute{torch.ComputeF32, torch.ComputeBF16} {
			base, err := LoadModel(dir, torch.HeadLM, torch.Placement{Compute: compute, Frozen: compute == torch.ComputeBF16})
			if err != nil {
				t.Fatal(err)
			}
			defer base.Close()
			m, err := set.Attach(base, torch.HeadLM, Ranks{})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			if compute == torch.ComputeF32 {
				compareLogprobs(t, m, want, 1e-5)
				saved := savedFamily(t, filepath.Join(filepath.Base(dir), "lora"))
				if err := set.Save(t.Context(), m, saved); err != nil {
					t.Fatal(err)
				}
				again, err := Adapter{LoRA: set.LoRA, Dir: saved}.Attach(base, torch.HeadLM, Ranks{})
				if err != nil {
					t.Fatal(err)
				}
				compareLogprobs(t, again, want, 1e-5)
				again.Close()
				merged := t.TempDir()
				if _, err := convert.Merge(dir, lora, merged, new(weights.F32)); err != nil {
					t.Fatal(err)
				}
				compareLogprobs(t, load(t, merged, torch.HeadLM), want, 1e-5)
			}
			var first map[string][2]float64
			for threads := 1; threads <= 4; threads++ {
				if err := torch.SetThreads(threads); err != nil {
					t.Fatal(err)
				}
				sums, _ := gradientSums(t, m, want.IDs, torch.PolicyLoss{Task: torch.NewLoss("nll", nil), Temperature: 1},
					torch.TermTask, "adapter_model.safetensors", func(out string, list []weights.Source) error {
						return peft.Save(out, peft.Config{Experts: config.ExpertsModule(), Targets: set.LoRA.Targets.Names()}, list)
					})
				if first == nil {
					first = sums
				} else if !maps.Equal(first, sums) {
					t.Errorf("%d threads: other bits than of one", threads)
				}
			}
			if compute == torch.ComputeF32 {
				if len(first) != len(want.Gradients) {
					t.Errorf("%d tensors, PEFT has %d", len(first), len(want.Gradients))
				}
				for name, got := range first {
					if w, ok := want.Gradients[name]; !ok || !(math.Hypot(got[0]-w[0], got[1]-w[1]) <= 1e-4*w[0]) {
						t.Errorf("gradient of %s: %v, PEFT gives %v", name, got, w)
					}
				}
			}
			engine, err := torch.NewEngine(m, torch.EngineConfig{KVBytes: 1 << 20, MaxSequences: 8, MaxLength: 30, MaxBatchTokens: 17})
			if err != nil {
				t.Fatal(err)
			}
			defer engine.Close()
			for i := range 6 {
				if err := engine.Submit(torch.Request{ID: uint64(i), Prompt: want.IDs[0][:1+3*i],
					Sampling: torch.Sampling{MaxTokens: 12, Temperature: 1, TopP: 1, Seed: uint64(i)}}); err != nil {
					t.Fatal(err)
				}
			}
			compareDrawn(t, engine, m, want.IDs[0])
		}
	})
}
