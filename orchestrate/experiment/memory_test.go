package experiment

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"gyre/orchestrate/config"
	"gyre/orchestrate/model/checkpoint"
	"gyre/torch"
)

func TestParametersAreTheModels(t *testing.T) {
	plain := torch.ModelConfig{Family: torch.Llama, VocabSize: 50, HiddenSize: 12, IntermediateSize: 20, NumLayers: 2,
		NumHeads: 3, NumKVHeads: 1,
		HeadDim: 6, MaxPositions: 32, RMSNormEps: 1e-6, RopeTheta: 1e4}
	tied, biased, qwen3, experts, value := plain, plain, plain, plain, plain
	tied.TieEmbeddings = true
	biased.QKVBias, biased.OutBias, biased.MLPBias = true, true, true
	qwen3.Family, qwen3.QKNorm = torch.Qwen3, true
	experts.Family, experts.Shape.Experts, experts.Shape.ChosenExperts, experts.Shape.ExpertSize = torch.Qwen3Moe, 4, 2, 7
	experts.Shape.Layers[1] = torch.DenseLayer
	value.Head = torch.HeadValue
	for name, c := range map[string]torch.ModelConfig{"plain": plain, "tied": tied, "biased": biased, "qwen3": qwen3,
		"experts": experts, "value": value} {
		model, err := torch.NewModel(c)
		if err != nil {
			t.Fatal(err)
		}
		defer model.Close()
		hasAsMany(t, name, checkpoint.AllWeights{}, model)
		targets := []string{"embed_tokens", "q_proj", "k_proj", "v_proj", "o_proj"}
		if name == "experts" {
			targets = append(targets, "experts.gate_up_proj", "experts.down_proj")
		} else {
			targets = append(targets, "gate_proj", "up_proj", "down_proj")
		}
		if name != "value" {
			targets = append(targets, "lm_head")
		}
		set := checkpoint.Adapter{LoRA: torch.LoRA{Rank: 3, Scale: 1, Targets: torch.TargetsOf(targets)}}
		adapter, err := set.Attach(model, c.Head, checkpoint.Ranks{})
		if err != nil {
			t.Fatal(err)
		}
		defer adapter.Close()
		hasAsMany(t, name+" with an adapter", set, adapter)
	}
}

// hasAsMany sees that a set counts what a model has.
func hasAsMany(t *testing.T, name string, set checkpoint.Trainable, model *torch.Model) {
	t.Helper()
	parameters, err := model.Parameters()
	if err != nil {
		t.Fatal(err)
	}
	defer torch.CloseParameters(parameters)
	want := int64(0)
	for _, p := range parameters {
		want += p.Elements()
	}
	if got := set.Count(model.Config); got != want {
		t.Errorf("%s: %d parameters, the model has %d", name, got, want)
	}
}

// measured is a run whose memory is measured: a model of 32 million parameters, with what the phase makes it do.
type measured struct {
	Phase     string
	Rows      int // of an update
	Recompute bool
	Sequences int // of a rollout, each of Length tokens
	Length    int
	Slim      bool // few weights, so that what lies beside them shows
	KVMiB     int
	Vocab     int64 // next to nothing but logits, of so many tokens
}

func (x measured) experiment() *Experiment {
	c := &config.Config{Envs: []config.Env{{Groups: x.Sequences, GroupSize: 1}}}
	c.Actor.MicroBatchTokens, c.Actor.RecomputeActivations = x.Rows, x.Recompute
	c.Rollout.MaxLength, c.Engine.MaxSequences, c.Engine.MaxBatchTokens, c.Engine.KVMiB = x.Length, x.Sequences, 512,
		x.KVMiB
	shape := torch.ModelConfig{Family: torch.Llama, Head: torch.HeadLM, VocabSize: 8192, HiddenSize: 512,
		IntermediateSize: 1536, NumLayers: 8, NumHeads: 8, NumKVHeads: 8,
		HeadDim: 64, MaxPositions: 2048, RMSNormEps: 1e-5, RopeTheta: 1e4, TieEmbeddings: true}
	if x.Slim {
		shape.VocabSize, shape.HiddenSize, shape.IntermediateSize = 512, 64, 128
	}
	if x.Vocab > 0 {
		shape.VocabSize, shape.HiddenSize, shape.IntermediateSize, shape.NumLayers, shape.NumHeads, shape.NumKVHeads,
			shape.HeadDim = x.Vocab, 16, 16, 1, 1, 1, 16
	}
	return &Experiment{Parts: Parts{Learn: x.Phase == "update", Play: x.Phase == "rollout"},
		Policy: &Model{Shape: shape, Trains: checkpoint.AllWeights{}}, Config: c}
}

// run does what is measured; the process does nothing else.
func (x measured) run() error {
	model, err := torch.NewModel(x.experiment().Policy.Shape)
	if err != nil {
		return err
	}
	parameters, err := model.Parameters()
	if err != nil {
		return err
	}
	for _, p := range parameters {
		if x.Vocab > 0 { // zeros do: the copy that is filled here would be a peak of its own
			break
		}
		values, err := p.Tensor.Float32s()
		if err != nil {
			return err
		}
		for i := range values {
			values[i] = float32(i%7-3) / 100
		}
		if err := p.Tensor.SetFloat32s(values); err != nil {
			return err
		}
	}
	torch.CloseParameters(parameters)
	debug.FreeOSMemory()
	if err := model.Touch(); err != nil {
		return err
	}
	if x.Phase == "rollout" {
		return x.play(model)
	}
	return x.learn(model)
}

func (x measured) learn(model *torch.Model) error {
	if err := model.SetRecompute(x.Recompute); err != nil {
		return err
	}
	optimizer, err := torch.NewOptimizer(model, torch.AdamW{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8})
	if err != nil {
		return err
	}
	gradients, err := torch.NewGradients(model)
	if err != nil {
		return err
	}
	ids, weights, mask := make([]int32, x.Rows), make([]float32, x.Rows), make([]bool, x.Rows)
	for i := range ids {
		ids[i], weights[i], mask[i] = int32(i*i%500), 1/float32(x.Rows), i > 0
	}
	weights[0] = 0
	if _, err := model.PolicyBackward(torch.Pack([][]int32{ids}, [][]bool{mask}), torch.PolicyInputs{Weights: weights},
		torch.PolicyLoss{Task: torch.NewLoss("nll", nil), Temperature: 1}, torch.Terms(gradients, nil,
			nil)[:1]); err != nil {
		return err
	}
	_, err = optimizer.Step(gradients, 1e-6, 1)
	return err
}

func (x measured) play(model *torch.Model) error {
	engine, err := torch.NewEngine(model, torch.EngineConfig{MaxSequences: int64(x.Sequences),
		MaxLength: int64(x.Length), MaxBatchTokens: 512, PrefixCache: true, KVBytes: int64(x.KVMiB) << 20})
	if err != nil {
		return err
	}
	for i := range x.Sequences {
		prompt := make([]int32, x.Length-8)
		for k := range prompt {
			prompt[k] = int32((i + 1) * (k + 3) % 500)
		}
		if err := engine.Submit(torch.Request{ID: uint64(i), Prompt: prompt,
			Sampling: torch.Sampling{Temperature: 1, TopP: 1, MaxTokens: 8, IgnoreEOS: true}}); err != nil {
			return err
		}
	}
	for {
		if unfinished, err := engine.Step(); err != nil || unfinished == 0 {
			return err
		}
	}
}

// TestMain lets the test binary be the process that is measured.
func TestMain(m *testing.M) {
	text := os.Getenv("GYRE_TEST_MEASURED")
	if text == "" {
		os.Exit(m.Run())
	}
	var x measured
	err := json.Unmarshal([]byte(text), &x)
	if err == nil {
		err = x.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(torch.PeakRSS())
}

// The plan is what a process really held at its peak, by phase, rows and recomputation.
func TestPlanIsWhatIsHeld(t *testing.T) {
	for _, x := range []measured{
		{Phase: "update", Rows: 512, Length: 256}, {Phase: "update", Rows: 512, Length: 256,
			Recompute: true}, {Phase: "rollout", Sequences: 8, Length: 256},
		{Phase: "rollout", Sequences: 16, Length: 512, Slim: true}, {Phase: "rollout", Sequences: 16, Length: 512,
			Slim: true, KVMiB: 160}, {Phase: "update", Rows: 2048, Length: 256, Slim: true},
	} {
		planned, held := x.planned(), x.held(t)
		t.Logf("%+v: planned %.0f MiB, held %.0f MiB", x, planned, held)
		if planned < 0.95*held || planned > 1.2*held {
			t.Errorf("%+v: %.0f MiB planned, %.0f MiB held", x, planned, held)
		}
	}
}

// Logits are a small part of most plans, and would be within the tolerance of a whole: here they are nearly all of
// what a larger vocabulary adds, so many targets at a time as fit into 64 MiB, but at least 256 and at most 512, or
// 64 rows of a decode step.
func TestLogitsInThePlanAreWhatIsHeld(t *testing.T) {
	for _, x := range []struct {
		name         string
		phase        string
		rows         int // of an update, or sequences of a decode step
		small, large int64
		logits       float64 // MiB that the larger vocabulary's take more, counted by hand
	}{
		{"fewer rows than a chunk", "update", 192, 8192, 131072, 4 * 192 * (131072 - 8192)},
		{"as many targets as may be", "update", 1025, 8192, 32768, 4 * 512 * (32768 - 8192)},
		{"as many as fit", "update", 2*341 + 1, 8192, 49152, 4 * (341*49152 - 512*8192)},
		{"no fewer than pays", "update", 513, 8192, 262144, 4 * (256*262144 - 512*8192)},
		{"a decode step", "rollout", 128, 8192, 262144, 4 * 64 * (262144 - 8192)},
	} {
		small := measured{Phase: x.phase, Rows: x.rows, Length: 16, Sequences: 1, Vocab: x.small}
		if x.phase == "rollout" {
			small.Rows, small.Sequences = 0, x.rows
		}
		large := small
		large.Vocab = x.large
		planned, held, logits := large.planned()-small.planned(), large.held(t)-small.held(t), x.logits/(1<<20)
		t.Logf("%s: planned %.0f MiB more, held %.0f MiB more, logits %.0f MiB", x.name, planned, held, logits)
		if planned < 0.85*held || planned > 1.15*held {
			t.Errorf("%s: of %d instead of %d tokens %.0f MiB more planned, %.0f MiB more held", x.name, x.large,
				x.small, planned, held)
		}
		if planned < logits {
			t.Errorf("%s: %.0f MiB more planned, the logits alone are %.0f MiB", x.name, planned, logits)
		}
	}
}

// planned is what the plan says, in MiB.
func (x measured) planned() float64 {
	return float64(x.experiment().PlanMemory().Phase(x.Phase)) / (1 << 20)
}

// held is what a process of its own held at its peak, in MiB.
func (x measured) held(t *testing.T) float64 {
	t.Helper()
	text, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), "GYRE_TEST_MEASURED="+string(text))
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%+v: %v\n%s", x, err, said.String())
	}
	held, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	if err != nil {
		t.Fatal(err)
	}
	return held / (1 << 20)
}
