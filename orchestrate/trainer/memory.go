package trainer

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"gyre/orchestrate/config"
	"gyre/torch"
)

// MemoryItem is one line of a memory plan.
type MemoryItem struct {
	What  string
	Bytes int64
	Phase string // "always", "rollout" or "update": rollout and update memory are not held at the same time
}

// MemoryPlan predicts what a run will hold: tensors, and about 0.2 GiB for the program itself and libtorch.
type MemoryPlan []MemoryItem

const programBytes = 200 << 20

// The loss is computed for so many targets at a time: csrc/model/score.cc.
const keptLogits, leastKept, mostKept = 32 << 20, 256, 512

// PlanMemory predicts the memory of a run from the shapes of its models.
func PlanMemory(c *config.Config, actor torch.ModelConfig, critic *torch.ModelConfig) MemoryPlan {
	var p MemoryPlan
	add := func(phase, what string, bytes int64) {
		if bytes > 0 {
			p = append(p, MemoryItem{what, bytes, phase})
		}
	}
	add("always", "program and libraries", programBytes)
	learner := func(who string, m torch.ModelConfig) {
		n := Parameters(m)
		add("always", who+": weights (f32)", 4*n)
		add("always", who+": gradients", 4*n)
		add("always", who+": AdamW moments", 8*n)
	}
	learner("actor", actor)
	if critic != nil {
		learner("critic", *critic)
	}
	if c.Algorithm.KLCoef != 0 {
		add("always", "reference: weights", 4*Parameters(actor))
	}
	episodes, groups := 0, 0
	for _, e := range c.Envs {
		episodes += e.Groups * e.GroupSize
		groups += e.Groups
	}
	sequences := min(episodes, c.Engine.MaxSequences)
	kv := int64(c.Engine.KVMiB) << 20
	if kv == 0 {
		// An idle episode keeps its history while its environment moves: every running one counts.
		kv = int64(sequences) * int64(c.Rollout.MaxLength) * 2 * actor.NumLayers * actor.NumKVHeads * actor.HeadDim * 4
	}
	add("rollout", "KV cache", kv)
	add("rollout", "packed copies of the matrices", 4*(actor.NumLayers*blockMatrices(actor)+actor.VocabSize*actor.HiddenSize))
	add("rollout", "logits of one decode step", int64(sequences)*actor.VocabSize*4)
	rows := int64(max(c.Actor.MicroBatchTokens, c.Rollout.MaxLength))
	what := "activations"
	if c.Actor.RecomputeActivations {
		what = "inputs of the blocks"
	}
	add("update", fmt.Sprintf("%s of a micro-batch of %d tokens", what, rows), 4*rows*keptFloats(actor, c.Actor.RecomputeActivations))
	add("update", "work space of a block", 4*rows*workFloats(actor, c.Actor.RecomputeActivations)+4*blockMatrices(actor))
	add("update", "logits of a chunk of targets", 4*actor.VocabSize*min(rows, max(keptLogits/actor.VocabSize, leastKept), mostKept))
	if c.Analysis.Enabled {
		plan := planAnalysis(c, Parameters(actor))
		add("update", "gradient analysis: "+plan.String(), plan.Bytes)
		if c.Analysis.InUpdate {
			add("update", "shares of the update: a buffer per bucket and one more", int64(analysisBuckets(c)+1)*4*Parameters(actor))
		}
	}
	if c.Components.Enabled {
		what, bytes := planComponents(c, Parameters(actor))
		add("update", what, bytes)
	}
	return p
}

// Phase is the most that is held in a phase.
func (p MemoryPlan) Phase(name string) int64 {
	total := int64(0)
	for _, item := range p {
		if item.Phase == "always" || item.Phase == name {
			total += item.Bytes
		}
	}
	return total
}

// Peak is the larger of the two phases.
func (p MemoryPlan) Peak() int64 { return max(p.Phase("rollout"), p.Phase("update")) }

func (p MemoryPlan) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, item := range p {
		fmt.Fprintf(w, "  %s\t%s\t%8.1f MiB\n", item.Phase, item.What, float64(item.Bytes)/(1<<20))
	}
	for _, phase := range []string{"rollout", "update"} {
		fmt.Fprintf(w, "  %s\tin all\t%8.1f MiB\n", phase, float64(p.Phase(phase))/(1<<20))
	}
	w.Flush()
	return b.String()
}

// noteMemory says what the run will hold, and what to change when the machine has less.
func (t *Trainer) noteMemory() {
	var critic *torch.ModelConfig
	if t.critic != nil {
		critic = &t.critic.model.Config
	}
	actor, c := t.actor.model.Config, *t.config
	plan, have := PlanMemory(&c, actor, critic), physicalMemory()
	gib := func(bytes int64) float64 { return float64(bytes) / (1 << 30) }
	peak := plan.Phase("update")
	if t.sampler == nil {
		t.log.Infof("memory: about %.1f GiB", gib(peak))
	} else {
		peak = plan.Peak()
		t.log.Infof("memory: about %.1f GiB in rollouts, %.1f GiB in updates", gib(plan.Phase("rollout")), gib(plan.Phase("update")))
	}
	if have == 0 || peak <= have {
		return
	}
	c.Actor.RecomputeActivations = true
	t.log.Warnf("this machine has %.1f GiB of memory: lower actor.micro_batch_tokens (%d) or engine.kv_mib, or set actor.recompute_activations = true "+
		"(about a quarter slower), with which updates take %.1f GiB", gib(have), c.Actor.MicroBatchTokens, gib(PlanMemory(&c, actor, critic).Phase("update")))
}

// Parameters counts a model's parameters.
func Parameters(m torch.ModelConfig) int64 {
	n := m.VocabSize*m.HiddenSize + m.HiddenSize + m.NumLayers*blockMatrices(m)
	if m.Head == torch.HeadLM && !m.TieEmbeddings {
		n += m.VocabSize * m.HiddenSize
	}
	norms := 2 * m.HiddenSize
	if m.QKNorm {
		norms += 2 * m.HeadDim
	}
	if m.QKVBias {
		norms += (m.NumHeads + 2*m.NumKVHeads) * m.HeadDim
	}
	if m.OutBias {
		norms += m.HiddenSize
	}
	if m.MLPBias {
		norms += 2*m.IntermediateSize + m.HiddenSize
	}
	n += m.NumLayers * norms
	if m.Head == torch.HeadValue {
		n += m.HiddenSize + 1
	}
	return n
}

// blockMatrices counts the elements of one block's projections.
func blockMatrices(m torch.ModelConfig) int64 {
	q, kv := m.NumHeads*m.HeadDim, m.NumKVHeads*m.HeadDim
	return m.HiddenSize * (2*q + 2*kv + 3*m.IntermediateSize)
}

// keptFloats is what the training forward keeps per row for the backward pass.
func keptFloats(m torch.ModelConfig, recompute bool) int64 {
	perBlock := m.HiddenSize
	if !recompute {
		perBlock = blockFloats(m)
	}
	return m.NumLayers*perBlock + 3*m.HiddenSize // the last block's output, the final hidden states and their gradient
}

func blockFloats(m torch.ModelConfig) int64 {
	q, kv := m.NumHeads*m.HeadDim, m.NumKVHeads*m.HeadDim
	return 2*m.HiddenSize + 2*q + 2*kv + m.NumHeads + 2*m.IntermediateSize + 2
}

// workFloats is the scratch of a block's backward pass per row, and with recomputation of its forward pass too.
func workFloats(m torch.ModelConfig, recompute bool) int64 {
	q, kv := m.NumHeads*m.HeadDim, m.NumKVHeads*m.HeadDim
	n := 3*m.HiddenSize + 3*q + 7*kv + 4*m.IntermediateSize
	if recompute {
		n += blockFloats(m) + 3*m.HiddenSize + q + 3*kv + m.IntermediateSize
	}
	return n
}
