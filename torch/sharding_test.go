package torch

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func init() {
	rankBodies["shards"] = shardsEqualOneProcess
	rankBodies["lanes"] = lanesGiveSameBits
	rankBodies["memory"] = shardsTakeTheirShare
	rankBodies["others"] = otherShards
	rankBodies["fall"] = fallInAPass
}

// shardCase is a model over ranks, and how many sequences it trains on.
type shardCase struct {
	name      string
	config    ModelConfig
	shard     ShardConfig
	sequences int
	rounding  float64 // how many times the usual difference is right
}

func (c shardCase) narrow() bool { return c.shard.BFloat16 }

// exact: the bits of log-probs do not depend on who computes them.
func (c shardCase) exact() bool { return c.config.Device == "" }

// shardConfigs are families with tied, untied and value heads, whose parameters are cut inside and between.
func shardConfigs() map[string]ModelConfig {
	llama := ModelConfig{Family: Llama, VocabSize: 307, HiddenSize: 96, IntermediateSize: 200, NumLayers: 3,
		NumHeads: 6, NumKVHeads: 2,
		HeadDim: 16, MaxPositions: 64, RMSNormEps: 1e-5, RopeTheta: 10000, TieEmbeddings: true}
	qwen2 := llama
	qwen2.Family, qwen2.QKVBias, qwen2.TieEmbeddings, qwen2.NumLayers = Qwen2, true, false, 1
	qwen3 := llama
	qwen3.Family, qwen3.QKNorm, qwen3.VocabSize = Qwen3, true, 67
	critic := qwen2
	critic.Head, critic.NumLayers = HeadValue, 2
	olmo3, gemma2 := qwen3, llama
	olmo3.Shape = Shape{NoInputNorms: true, OutputNorms: true, WideQKNorm: true, Window: 9}
	olmo3.Shape.Layers[0] = WindowLayer
	gemma2.Shape = Shape{OutputNorms: true, UnitNorms: true, ScoreCap: 2, LogitCap: 3, Activation: GELUTanh, Window: 5,
		EmbeddingScale: 4}
	gemma2.Shape.Layers[1] = WindowLayer
	mixture := qwen3
	mixture.Shape = Shape{Experts: 5, ChosenExperts: 2, ExpertSize: 33, SharedSize: 40, NormalizedRouting: true}
	mixture.Shape.Layers[1] = DenseLayer
	return map[string]ModelConfig{"llama": llama, "qwen2": qwen2, "qwen3": qwen3, "critic": critic, "olmo3": olmo3,
		"gemma2": gemma2, "mixture": mixture}
}

func shardCases() []shardCase {
	models := shardConfigs()
	return []shardCase{
		{"full", models["llama"], ShardConfig{Prefetch: 1}, 7, 0},
		{"full, three sequences", models["llama"], ShardConfig{Prefetch: 2}, 3, 0},
		{"full, untied, one layer", models["qwen2"], ShardConfig{}, 7, 0},
		{"full, query and key norms", models["qwen3"], ShardConfig{Prefetch: 1}, 5, 0},
		{"full, norms over all heads", models["olmo3"], ShardConfig{Prefetch: 1}, 7, 20},
		{"full, soft-capping", models["gemma2"], ShardConfig{Prefetch: 1, Deterministic: true, Lanes: 12}, 5, 20},
		{"full, experts", models["mixture"], ShardConfig{Prefetch: 1}, 7, 20},
		{"full, critic", models["critic"], ShardConfig{Prefetch: 1}, 7, 0},
		{"optimizer", models["llama"], ShardConfig{Shard: ShardOptimizer}, 7, 0},
		{"optimizer, critic", models["critic"], ShardConfig{Shard: ShardOptimizer}, 3, 0},
		{"none", models["qwen2"], ShardConfig{Shard: ShardNone}, 7, 0},
		{"full, lanes", models["llama"], ShardConfig{Prefetch: 1, Deterministic: true, Lanes: 12}, 7, 0},
		{"optimizer, lanes", models["qwen3"], ShardConfig{Shard: ShardOptimizer, Deterministic: true, Lanes: 12}, 7, 0},
	}
}

// otherCases are what needs an even number of ranks, or rounds.
func otherCases() []shardCase {
	models := shardConfigs()
	tensors := models["qwen2"]
	tensors.NumLayers, tensors.Placement = 2, Placement{Device: "aten", Compute: ComputeF32}
	return []shardCase{
		{"full, two replicas", models["llama"], ShardConfig{Prefetch: 1, Replicas: 2}, 7, 0},
		{"optimizer, two replicas", models["critic"], ShardConfig{Shard: ShardOptimizer, Replicas: 2}, 7, 0},
		{"full, on tensors", tensors, ShardConfig{Prefetch: 1}, 7, 20},
		{"full, bfloat16 between ranks", models["llama"], ShardConfig{Prefetch: 1, BFloat16: true}, 7, 5e3},
	}
}

func otherShards(group *Group) error {
	for _, c := range otherCases() {
		if err := c.check(group); err != nil {
			return fmt.Errorf("%s, %d ranks: %w", c.name, group.WorldSize(), err)
		}
	}
	return nil
}

// The last rank ends between two passes, while the others are in the second.
func fallInAPass(group *Group) error {
	config := shardConfigs()["llama"]
	m, err := NewShardedModel(config, group, ShardConfig{Prefetch: 1})
	if err != nil {
		return err
	}
	defer m.Close()
	if err := fillHeld(m); err != nil {
		return err
	}
	g, err := NewGradients(m)
	if err != nil {
		return err
	}
	defer g.Close()
	all := trainingSequences(2, config.VocabSize)
	if err := pass(m, all, g); err != nil {
		return err
	}
	if group.Rank() == group.WorldSize()-1 {
		os.Exit(7)
	}
	begin := time.Now()
	err = pass(m, all, g)
	if !errors.Is(err, ErrDisconnected) || time.Since(begin) > 20*time.Second {
		return fmt.Errorf("got %v after %v", err, time.Since(begin))
	}
	if err := pass(m, all, g); !errors.Is(err, ErrDisconnected) {
		return fmt.Errorf("after the failure: %v", err)
	}
	fmt.Println(err)
	return noticed(group)
}

func TestRankThatFallsInAPassIsNamed(t *testing.T) {
	output, failed := startRanks(t, "fall", 3, time.Minute).wait()
	for r, text := range output[:2] {
		if failed[r] != nil || !strings.Contains(text, "rank 2") || !strings.Contains(text, "weights") {
			t.Errorf("rank %d: %v: %s", r, failed[r], text)
		}
	}
}

func shardsEqualOneProcess(group *Group) error {
	for _, c := range shardCases() {
		if err := c.check(group); err != nil {
			return fmt.Errorf("%s, %d ranks: %w", c.name, group.WorldSize(), err)
		}
	}
	return nil
}

// check trains three steps on the ranks and on a model of this process alone.
func (c shardCase) check(group *Group) error {
	m, err := NewShardedModel(c.config, group, c.shard)
	if err != nil {
		return err
	}
	defer m.Close()
	alone, err := NewModel(c.config)
	if err != nil {
		return err
	}
	defer alone.Close()
	all := trainingSequences(c.sequences, c.config.VocabSize)
	var optimizers [2]*Optimizer
	var gradients, second [2]*Gradients
	for i, model := range []*Model{m, alone} {
		var round []func(float32) float32
		if i == 1 && c.narrow() { // what the ranks send each other
			round = append(round, narrowed)
		}
		if err := fillHeld(model, round...); err != nil {
			return err
		}
		// With an eps above the gradients' rounding: without, an entry that is all rounding moves by a full step this
		// way or that.
		if optimizers[i], err = NewOptimizer(model, AdamW{Beta1: 0.9, Beta2: 0.99, Eps: 1e-2,
			WeightDecay: 0.01}); err != nil {
			return err
		}
		defer optimizers[i].Close()
		if gradients[i], err = NewGradients(model); err != nil {
			return err
		}
		defer gradients[i].Close()
		if second[i], err = NewGradients(model); err != nil {
			return err
		}
		defer second[i].Close()
	}
	if err := c.sampling(m, alone, all); err != nil {
		return err
	}
	for step := range 3 {
		for i, model := range []*Model{m, alone} {
			if err := gradients[i].Zero(); err != nil {
				return err
			}
			if i == 0 {
				err = backward(model, group, c.shard, all, gradients[i])
			} else {
				err = pass(model, all, gradients[i])
			}
			if err != nil {
				return err
			}
		}
		if err := c.compare(gradients, second, step); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
		if c.narrow() { // from here on masters and rounded weights go different ways
			return nil
		}
		models := [2]*Model{m, alone}
		moved, err := differences(models, -1, [2]*Gradients{})
		if err != nil {
			return err
		}
		defer moved[0].Close()
		defer moved[1].Close()
		var norms [2]float64
		for i, o := range optimizers {
			result, err := o.Step(gradients[i], 1e-4, 0.5)
			if err != nil || !result.Applied {
				return fmt.Errorf("step: %+v, %v", result, err)
			}
			norms[i] = result.GradNorm
		}
		if relative(norms[0], norms[1]) > c.tolerance(step) {
			return fmt.Errorf("step %d: gradient norm %v, alone %v", step, norms[0], norms[1])
		}
		if _, err := differences(models, 1, moved); err != nil {
			return err
		}
		if err := c.compare(moved, second, step+1); err != nil { // to the rounding of weights
			return fmt.Errorf("what step %d changed: %w", step, err)
		}
	}
	got, err := wholeWeights(m, group)
	if err != nil {
		return err
	}
	want, err := wholeWeights(alone, nil)
	if err != nil {
		return err
	}
	for i := range want {
		if err := same(doubles(got[i]), doubles(want[i]), 2e-6*max(c.rounding, 1)); err != nil {
			return fmt.Errorf("parameter %d: %w", i, err)
		}
	}
	return nil
}

// differences adds the weights of two models to buffers of theirs, which it makes where there are none.
func differences(models [2]*Model, scale float64, into [2]*Gradients) (_ [2]*Gradients, err error) {
	for i, m := range models {
		if into[i] == nil {
			if into[i], err = NewGradients(m); err != nil {
				return into, err
			}
		}
		if err := into[i].AddWeights(m, scale); err != nil {
			return into, err
		}
	}
	return into, nil
}

// sampling checks that scores and the engine's tokens are those of the model alone, bit for bit.
func (c shardCase) sampling(m, alone *Model, all []trainingData) error {
	rank := m.group.Rank()
	mine := all[min(rank, len(all)-1):min(rank+1, len(all))]
	if rank >= len(all) {
		mine = nil
	}
	b := Batch{}
	if len(mine) > 0 {
		b = Pack([][]int32{mine[0].ids}, nil)
	}
	if c.config.Head == HeadValue {
		if len(mine) == 0 && c.shard.Shard == ShardOptimizer {
			return nil
		}
		got, err := m.Values(b)
		if err != nil || len(mine) == 0 {
			return err
		}
		want, err := alone.Values(b)
		if !slices.Equal(got, want) {
			return fmt.Errorf("values are %v, alone %v (%v)", got, want, err)
		}
		return nil
	}
	if len(mine) > 0 || c.shard.Shard == "" {
		got, err := m.Logprobs(b, 1)
		entropies, failed := m.Entropies(b, 1)
		if err = errors.Join(err, failed); err != nil {
			return err
		}
		if len(mine) > 0 {
			want, err := alone.Logprobs(b, 1)
			wanted, failed := alone.Entropies(b, 1)
			if !c.exact() {
				if err := same(doubles(got), doubles(want), 1e-6*c.rounding); err != nil {
					return fmt.Errorf("log-probs: %w", err)
				}
			} else if !slices.Equal(got, want) || !slices.Equal(entropies, wanted) {
				return fmt.Errorf("log-probs are %v, alone %v (%v)", got, want, errors.Join(err, failed))
			}
		}
	}
	if err := m.Gather(); err != nil {
		return err
	}
	var outputs [2]Output
	for i, model := range []*Model{m, alone} {
		e, err := NewEngine(model, EngineConfig{MaxSequences: 2, MaxLength: 24, MaxBatchTokens: 64})
		if err != nil {
			return err
		}
		defer e.Close()
		if err := e.Submit(Request{ID: 1, Prompt: all[rank%len(all)].ids, Sampling: Sampling{Temperature: 1, TopP: 1,
			MaxTokens: 6, Seed: 3}}); err != nil {
			return err
		}
		for n := 1; n > 0; {
			if n, err = e.Step(); err != nil {
				return err
			}
		}
		done, err := e.Poll()
		if err != nil || len(done) != 1 {
			return fmt.Errorf("engine: %d outputs, %v", len(done), err)
		}
		outputs[i] = done[0]
		if err := e.Sleep(); err != nil {
			return err
		}
	}
	if !c.exact() {
		return nil
	}
	if !slices.Equal(outputs[0].Tokens, outputs[1].Tokens) || !slices.Equal(outputs[0].Logprobs, outputs[1].Logprobs) {
		return fmt.Errorf("the engine gives %v, alone %v", outputs[0], outputs[1])
	}
	return nil
}

// tolerance of a gradient's norm: that of other orders of addition, and later of the weights that these have moved.
func (c shardCase) tolerance(step int) float64 {
	if step == 0 {
		return 5e-7 * max(c.rounding, 1)
	}
	return 1e-5 * max(c.rounding, 1)
}

// compare holds inner products and sketches of the ranks' gradients against those of one process.
func (c shardCase) compare(gradients, second [2]*Gradients, step int) error {
	var dots, products, sketches [2][]float64
	for i, g := range gradients {
		if err := second[i].Add(g, 0.5); err != nil { // sums of steps
			return err
		}
		_, dot, err := g.Dot(g)
		if err != nil {
			return err
		}
		dots[i] = dot
		pairs, err := Products([]*Gradients{g, second[i]})
		if err != nil {
			return err
		}
		products[i] = slices.Concat(pairs...)
		if c.exact() && !slices.Equal(pairs[0], dot) {
			return fmt.Errorf("products are %v, inner products %v", pairs[0], dot)
		}
		sketch, err := g.Sketch(1009)
		if err != nil {
			return err
		}
		sketches[i] = doubles(sketch)
	}
	if err := same(dots[0], dots[1], 2*c.tolerance(step)); err != nil {
		return fmt.Errorf("inner products: %w", err)
	}
	if err := same(products[0], products[1], 2*c.tolerance(step)); err != nil {
		return fmt.Errorf("products: %w", err)
	}
	if err := same(sketches[0], sketches[1], 10*c.tolerance(step)); err != nil {
		return fmt.Errorf("sketch: %w", err)
	}
	return nil
}

// openShards makes a model with known weights and what changes it. What an error leaves open, the end of the rank's
// process closes.
func openShards(config ModelConfig, group *Group, s ShardConfig) (m *Model, o *Optimizer, g *Gradients, err error) {
	if m, err = NewShardedModel(config, group, s); err == nil {
		err = fillHeld(m)
	}
	if err == nil {
		o, err = NewOptimizer(m, AdamW{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.01})
	}
	if err == nil {
		g, err = NewGradients(m)
	}
	return m, o, g, err
}

// lanesGiveSameBits prints the digests of weights and gradient norms after some steps with deterministic sums.
func lanesGiveSameBits(group *Group) error {
	for _, shard := range []string{ShardFull, ShardOptimizer, ShardNone} {
		for _, head := range []string{"llama", "critic"} {
			config := shardConfigs()[head]
			s := ShardConfig{Shard: shard, Prefetch: 1, Deterministic: true, Lanes: 12}
			m, o, g, err := openShards(config, group, s)
			if err != nil {
				return err
			}
			defer m.Close()
			defer o.Close()
			defer g.Close()
			digest := sha256.New()
			for range 3 {
				if err := g.Zero(); err != nil {
					return err
				}
				if err := backward(m, group, s, trainingSequences(17, config.VocabSize), g); err != nil {
					return err
				}
				result, err := o.Step(g, 1e-2, 0.1)
				if err != nil {
					return err
				}
				fmt.Fprintln(digest, math.Float64bits(result.GradNorm))
			}
			weights, err := wholeWeights(m, group)
			if err != nil {
				return err
			}
			for _, w := range weights {
				digest.Write(bytesOf(w))
			}
			fmt.Printf("%s: %x\n", head, digest.Sum(nil))
		}
	}
	return nil
}

// shardsTakeTheirShare measures what a model, its gradients and its optimizer add to the memory of a rank.
func shardsTakeTheirShare(group *Group) error {
	config := ModelConfig{Family: Llama, VocabSize: 320, HiddenSize: 256, IntermediateSize: 768, NumLayers: 48,
		NumHeads: 4, NumKVHeads: 2,
		HeadDim: 64, MaxPositions: 64, RMSNormEps: 1e-5, RopeTheta: 10000, TieEmbeddings: true}
	before := PeakRSS()
	m, o, g, err := openShards(config, group, ShardConfig{Prefetch: 1})
	if err != nil {
		return err
	}
	defer m.Close()
	defer o.Close()
	defer g.Close()
	if err := pass(m, trainingSequences(1, config.VocabSize), g); err != nil {
		return err
	}
	if _, err := o.Step(g, 1e-3, 1); err != nil {
		return err
	}
	parameters, err := m.Parameters()
	if err != nil {
		return err
	}
	defer CloseParameters(parameters)
	var entries int64
	for _, p := range parameters {
		shape, err := p.Tensor.Shape()
		if err != nil {
			return err
		}
		entries += count(shape)
	}
	// What else is there: activations of a pass of few rows, the kernels' packed copy of a block, threads, messages.
	const besides = 24 << 20
	took, share := PeakRSS()-before, 16*entries/int64(group.WorldSize())
	fmt.Printf("%d ranks: %d MiB for a share of %d MiB\n", group.WorldSize(), took>>20, share>>20)
	if float64(took) > 1.15*float64(share)+besides {
		return fmt.Errorf("a rank took %d MiB, its share is %d MiB", took>>20, share>>20)
	}
	return nil
}

func TestShardsTakeTheirShareOfMemory(t *testing.T) {
	for _, n := range []int{2, 4} {
		for _, line := range runRanks(t, "memory", n) {
			t.Log(strings.TrimSpace(line))
		}
	}
}

func TestShardConfigsThatDoNotFit(t *testing.T) {
	for want, s := range map[string]ShardConfig{
		`shard is "half"`:           {Shard: "half"},
		"replicas is 2":             {Replicas: 2},
		"prefetch is -1":            {Prefetch: -1},
		"lanes is 0":                {Deterministic: true},
		"need float32 between rank": {Deterministic: true, Lanes: 2, BFloat16: true},
	} {
		if _, err := NewShardedModel(tinyConfig(HeadLM), nil, s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", s, err, want)
		}
	}
}
