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

// MemoryPlan predicts what a run will hold. It counts tensors; the program itself and libtorch add about 0.3 GiB.
type MemoryPlan []MemoryItem

const programBytes = 300 << 20

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
		add("always", who+": packed copies of the matrices", 4*packed(m))
		add("always", who+": gradients", 4*n)
		add("always", who+": AdamW moments", 8*n)
	}
	learner("actor", actor)
	if critic != nil {
		learner("critic", *critic)
	}
	if c.Algorithm.KLCoef != 0 {
		add("always", "reference: weights and packed copies", 4*Parameters(actor)+4*packed(actor))
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
	add("rollout", "logits of one decode step", int64(sequences)*actor.VocabSize*4)
	tokens := int64(max(c.Actor.MicroBatchTokens, 1))
	add("update", fmt.Sprintf("activations of a micro-batch of %d tokens", tokens), 4*tokens*activationFloats(actor))
	add("update", "logits of one chunk and their gradient", 2*64*actor.VocabSize*4)
	if c.Analysis.Enabled {
		plan := planAnalysis(c, Parameters(actor))
		add("update", "gradient analysis: "+plan.String(), plan.Bytes)
		if c.Analysis.InUpdate {
			add("update", "shares of the update: a buffer per bucket and one more", int64(analysisBuckets(c)+1)*4*Parameters(actor))
		}
	}
	return p
}

// Peak is the larger of the two phases.
func (p MemoryPlan) Peak() int64 {
	sums := map[string]int64{}
	for _, item := range p {
		sums[item.Phase] += item.Bytes
	}
	return sums["always"] + max(sums["rollout"], sums["update"])
}

func (p MemoryPlan) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, item := range p {
		fmt.Fprintf(w, "  %s\t%s\t%8.1f MiB\n", item.Phase, item.What, float64(item.Bytes)/(1<<20))
	}
	fmt.Fprintf(w, "  peak\t\t%8.1f MiB\n", float64(p.Peak())/(1<<20))
	w.Flush()
	return b.String()
}

// Parameters counts a model's parameters.
func Parameters(m torch.ModelConfig) int64 {
	n := m.VocabSize*m.HiddenSize + m.HiddenSize + packed(m)
	if m.Head == torch.HeadLM && m.TieEmbeddings {
		n -= m.VocabSize * m.HiddenSize // the head's packed copy is of the embedding
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

// packed counts the elements of all matrices that are multiplied with: the blocks' projections and the LM head.
func packed(m torch.ModelConfig) int64 {
	block := m.HiddenSize*(m.NumHeads+2*m.NumKVHeads)*m.HeadDim + m.NumHeads*m.HeadDim*m.HiddenSize + 3*m.HiddenSize*m.IntermediateSize
	n := m.NumLayers * block
	if m.Head == torch.HeadLM {
		n += m.VocabSize * m.HiddenSize
	}
	return n
}

// activationFloats is what the training forward keeps per token over all blocks.
func activationFloats(m torch.ModelConfig) int64 {
	q, kv := m.NumHeads*m.HeadDim, m.NumKVHeads*m.HeadDim
	perBlock := 4*m.HiddenSize + 2*q + 2*kv + m.NumHeads + 3*m.IntermediateSize
	if m.QKNorm {
		perBlock += q + kv
	}
	return m.NumLayers*perBlock + 4*m.HiddenSize
}
