package experiment

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

// MemoryPlan predicts what an experiment will hold: tensors, and about 0.2 GiB for the program itself and libtorch.
type MemoryPlan []MemoryItem

const programBytes = 200 << 20

// The loss is computed for so many targets at a time: csrc/backend/cpu/score.cc.
const keptLogits, leastKept, mostKept = 16 << 20, 256, 512

// The sampler draws from so many rows of logits at a time: csrc/engine/engine.cc.
const headRows = 64

// divisors are over how many ranks weights, gradients and moments are shared out.
func (e *Experiment) divisors() (weights, gradients, moments int64) {
	f := e.Config.FSDP
	set := int64(max(e.Parts.Ranks/max(f.Replicas, 1), 1))
	switch f.Shard {
	case "full":
		return set, set, set
	case "optimizer":
		return 1, 1, set
	}
	return 1, 1, 1
}

// PlanMemory predicts the memory of an experiment, of each of its ranks where there are several, from the shapes of
// its models.
func (e *Experiment) PlanMemory() (p MemoryPlan) {
	p.add("always", "program and libraries", programBytes)
	e.planModels(&p)
	e.planBlocks(&p)
	if e.Parts.Play {
		e.planRollouts(&p)
	}
	if e.Parts.Learn || e.Parts.Analyse {
		planUpdates(&p, e.Config, e.Policy.Shape)
	}
	if k := int64(e.Config.Algorithm.KLTopK); e.Reference != nil {
		p.add("update", "likeliest tokens of the KL reference", 4*(2*k+1)*min(k, 1)*
			int64(e.Config.Episodes()*e.Config.Rollout.MaxLength))
	}
	if e.Parts.Analyse {
		e.planMeasures(&p)
	}
	return p
}

func (p *MemoryPlan) add(phase, what string, bytes int64) {
	if bytes > 0 {
		*p = append(*p, MemoryItem{what, bytes, phase})
	}
}

// planModels plans weights, and what learns them: gradients and moments. Models that only compute are packed.
func (e *Experiment) planModels(p *MemoryPlan) {
	c, shape, base := e.Config, e.Policy.Shape, e.Policy.Trains.Base()
	weights, gradients, moments := e.divisors()
	if base != "" {
		packed := elementBytes(c) * Parameters(shape)
		if shape.Int8 {
			packed -= (elementBytes(c) - 1) * shape.NumLayers * blockMatrices(shape)
		}
		if e.together() > 1 && weights == 1 {
			p.add("always", "base: weights (f32)", 4*Parameters(shape))
		} else {
			p.add("always", "base: packed weights", packed/weights)
		}
	}
	for who, m := range e.models() {
		n := m.Trains.Count(m.Shape)
		if m.Trains.Base() == "" && (m.Shape.Frozen || base != "") {
			if m != e.Policy && m.Dir != base { // the policy's are the sampler's
				p.add("always", who+": packed weights", elementBytes(c)*n)
			}
			continue
		}
		p.add("always", who+": weights (f32)", 4*n/weights)
		if e.Parts.Learn && m != e.Reference {
			p.add("always", who+": gradients", 4*n/gradients)
			p.add("always", who+": AdamW moments", 8*n/moments)
		}
	}
}

// planBlocks plans what a rank gets of weights in shards: the blocks at hand, the next ones, and what is no block
// (embedding and head).
func (e *Experiment) planBlocks(p *MemoryPlan) {
	weights, _, _ := e.divisors()
	if weights == 1 {
		return
	}
	c, shape := e.Config, e.Policy.Shape
	block, rest := blockMatrices(shape), Parameters(shape)-bodyMatrices(shape)
	p.add("update", "weights and gradients of the blocks at hand", 4*(int64(2+c.FSDP.Prefetch)*block+2*rest))
	if !e.Parts.Play {
		return
	}
	p.add("rollout", "weights at hand while the sampler is compared with the trainer",
		4*(rest+int64(1+c.FSDP.Prefetch)*block))
	if c.Engine.TensorParallel <= 1 && !shape.TieEmbeddings {
		p.add("rollout", "the sampler's copy of the embedding", 4*shape.VocabSize*shape.HiddenSize)
	}
}

// together is how many ranks sample as one.
func (e *Experiment) together() int {
	if e.Parts.Ranks <= 1 || !e.Parts.Play {
		return 1
	}
	return max(e.Config.Engine.TensorParallel, 1)
}

func (e *Experiment) planRollouts(p *MemoryPlan) {
	c, actor, phase := e.Config, e.Policy.Shape, "rollout"
	if c.Rollout.Staleness > 0 && e.Parts.Learn { // during updates too
		phase = "always"
	}
	together := e.together()
	teams := max(e.Parts.Ranks, 1) / together
	sequences := min((c.AtOnce()+teams-1)/teams, c.Engine.MaxSequences)
	kv := int64(c.Engine.KVMiB) << 20
	if kv == 0 {
		// An idle episode keeps its history while its environment moves: every running one counts.
		kv = int64(sequences) * int64(c.Rollout.MaxLength) * elementBytes(c) * kvFloats(headsOfOne(actor, together))
	}
	tables := actor.VocabSize * actor.HiddenSize // the head, and of ranks that sample together the embedding
	if together > 1 && !actor.TieEmbeddings {
		tables *= 2
	}
	p.add(phase, "KV cache", kv)
	if e.Policy.Trains.Base() == "" || together > 1 { // a whole base is packed anyway
		p.add(phase, "packed copies of the matrices",
			elementBytes(c)*(bodyMatrices(actor)+tables)/int64(together))
	}
	p.add(phase, "logits of a decode step", 4*actor.VocabSize*int64(min(sequences, headRows)))
}

func planUpdates(p *MemoryPlan, c *config.Config, actor torch.ModelConfig) {
	rows := int64(max(c.Actor.MicroBatchTokens, c.Rollout.MaxLength))
	what := "activations"
	if c.Actor.RecomputeActivations {
		what = "inputs of the blocks"
	}
	p.add("update", fmt.Sprintf("%s of a micro-batch of %d tokens", what, rows),
		4*rows*keptFloats(actor, elementBytes(c), c.Actor.RecomputeActivations))
	p.add("update", "work space of a block", 4*rows*workFloats(actor, elementBytes(c),
		c.Actor.RecomputeActivations)+elementBytes(c)*blockMatrices(actor))
	p.add("update", "logits of a chunk of targets", 4*actor.VocabSize*min(rows,
		max(keptLogits/actor.VocabSize, leastKept), mostKept))
}

// RewardComponents are the components to measure, in the order of reports.
func RewardComponents(c *config.Config) []string {
	var rewarded []string
	for _, r := range c.Rewards {
		rewarded = append(rewarded, r.Name)
	}
	if len(c.Components.Names) > 0 {
		return c.Components.Names
	}
	return rewarded
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

// Note says what the experiment will hold; warning is not empty where the machine has less, and says what to change.
func (e *Experiment) Note() (note, warning string) {
	plan, have, c := e.PlanMemory(), Memory(), e.Config
	note = fmt.Sprintf("memory: about %.1f GiB", gibibytes(plan.Peak()))
	if e.Parts.Play && e.Parts.Learn {
		note = fmt.Sprintf("memory: about %.1f GiB in rollouts, %.1f GiB in updates", gibibytes(plan.Phase("rollout")),
			gibibytes(plan.Phase("update")))
	}
	if have == 0 || plan.Peak() <= have {
		return note, ""
	}
	smaller, recomputing := *e, *c
	recomputing.Actor.RecomputeActivations = true
	smaller.Config = &recomputing
	return note, fmt.Sprintf("this machine has %.1f GiB of memory: lower actor.micro_batch_tokens (%d) or "+
		"engine.kv_mib, or set actor.recompute_activations = true (about a quarter slower), with which updates take "+
		"%.1f GiB", gibibytes(have), c.Actor.MicroBatchTokens, gibibytes(smaller.PlanMemory().Phase("update")))
}
