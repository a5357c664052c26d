package work

import (
	"math"
	"testing"

	"gyre/torch"
)

// smollm2 is SmolLM2-135M.
var smollm2 = torch.ModelConfig{VocabSize: 49152, HiddenSize: 576, IntermediateSize: 1536, NumLayers: 30, NumHeads: 9,
	NumKVHeads: 3,
	HeadDim:    64, TieEmbeddings: true}

func find(t *testing.T, name string) Case {
	t.Helper()
	for _, c := range Cases() {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no case %q", name)
	return Case{}
}

// The expected rates are worked out by hand from 106.2 + 28.3 million parameters, without attention.
func TestBound(t *testing.T) {
	machine := Machine{Bandwidth: 28e9, FLOPS: 150e9}
	for name, want := range map[string]float64{
		"generate/1":       45,  // 64 readings of 0.54 GB and a prompt of 27 GFLOP
		"generate/16":      205, // 2048 prompt tokens × 0.21 GFLOP, 1008 × 0.27
		"generate/shared":  490,
		"logprobs":         540,
		"update/unrelated": 180,
	} {
		task := Task{Case: find(t, name)}
		for range max(task.Batch, task.Rows) {
			task.Prompts = append(task.Prompts, make([]int32, task.Prompt))
			task.Sequences = append(task.Sequences, make([]int32, task.Length))
		}
		got := float64(task.Tokens()) / Bound(task, smollm2, machine, false).Total
		if math.Abs(got/want-1) > 0.06 {
			t.Errorf("%s: %.0f tokens/s, expected about %.0f", name, got, want)
		}
	}
}

// What is shared is not computed twice.
func TestBoundCountsSharedTokensOnce(t *testing.T) {
	machine := Machine{Bandwidth: math.Inf(1), FLOPS: 1e12}
	alone := Task{Case: Case{Op: OpUpdate, Rows: 8, Length: 192}}
	group := alone
	group.Context = 128
	ratio := Bound(alone, smollm2, machine, false).Total / Bound(group, smollm2, machine, false).Total
	if ratio < 2.2 || ratio > 2.6 {
		t.Errorf("a group of 1536 tokens, 640 of them distinct, takes 1/%.2f of the time, expected 1/2.2 to 1/2.6",
			ratio)
	}
}

// By hand: log-probs of 4 × 256 tokens take 0.28 TFLOP, 47 million exponentials of activations, 50 of logits and 36 of
// attention; decoding one sequence waits for memory meanwhile.
func TestAttainable(t *testing.T) {
	machine := Machine{Bandwidth: 28e9, FLOPS: 1e12, Rows: 1e9}
	for name, want := range map[string]float64{"logprobs": 0.68, "generate/1": 1} {
		task := Task{Case: find(t, name)}
		if got := Bound(task, smollm2, machine, false).Attainable; math.Abs(got-want) > 0.01 {
			t.Errorf("%s: %.3f attainable, expected %.2f", name, got, want)
		}
	}
	machine.Rows = 0
	if got := Bound(Task{Case: find(t, "logprobs")}, smollm2, machine, false).Attainable; got != 0 {
		t.Errorf("%v attainable where no exponentials were measured, expected 0", got)
	}
}

func TestCommonPrefix(t *testing.T) {
	if n := commonPrefix([][][]int32{{{1, 2, 3}}, {{1, 2, 4, 5}}, {{1, 2}}}); n != 2 {
		t.Errorf("common prefix of %d tokens, expected 2", n)
	}
}
