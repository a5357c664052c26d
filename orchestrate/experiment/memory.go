package experiment

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/gradients"
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
func (e *Experiment) PlanMemory() MemoryPlan {
	var p MemoryPlan
	c, actor := e.Config, e.Policy.Shape
	add := func(phase, what string, bytes int64) {
		if bytes > 0 {
			p = append(p, MemoryItem{what, bytes, phase})
		}
	}
	weights, gradients, moments := e.divisors()
	add("always", "program and libraries", programBytes)
	adapted, trained := actor.LoRA.Rank > 0, Trained(actor)
	if adapted {
		packed := elementBytes(c) * Parameters(actor)
		if actor.Int8 {
			packed -= (elementBytes(c) - 1) * actor.NumLayers * blockMatrices(actor)
		}
		if e.together() > 1 && weights == 1 {
			add("always", "base: weights (f32)", 4*Parameters(actor))
		} else {
			add("always", "base: packed weights", packed/weights)
		}
	}
	for who, m := range e.models() {
		n := Trained(m.Shape)
		if m.Shape.LoRA.Rank == 0 && (m.Shape.Frozen || adapted) {
			if m != e.Policy && !(adapted && m.Dir == e.Policy.Dir) { // the policy's are the sampler's
				add("always", who+": packed weights", elementBytes(c)*n)
			}
			continue
		}
		add("always", who+": weights (f32)", 4*n/weights)
		if e.Parts.Learn && m != e.Reference {
			add("always", who+": gradients", 4*n/gradients)
			add("always", who+": AdamW moments", 8*n/moments)
		}
	}
	if weights > 1 { // the blocks at hand, the next ones, and what is no block: embedding and head
		block := blockMatrices(actor)
		add("update", "weights and gradients of the blocks at hand",
			4*(int64(2+c.FSDP.Prefetch)*block+2*(Parameters(actor)-bodyMatrices(actor))))
		if e.Parts.Play {
			atHand := Parameters(actor) - bodyMatrices(actor) + int64(1+c.FSDP.Prefetch)*block
			add("rollout", "weights at hand while the sampler is compared with the trainer", 4*atHand)
			if c.Engine.TensorParallel <= 1 && !actor.TieEmbeddings {
				add("rollout", "the sampler's copy of the embedding", 4*actor.VocabSize*actor.HiddenSize)
			}
		}
	}
	if e.Parts.Play {
		e.planRollouts(add)
	}
	if e.Parts.Learn || e.Parts.Analyse {
		planUpdates(c, actor, add)
	}
	if k := int64(c.Algorithm.KLTopK); e.Reference != nil {
		add("update", "likeliest tokens of the KL reference", 4*(2*k+1)*min(k, 1)*
			int64(c.Episodes()*c.Rollout.MaxLength))
	}
	if e.Parts.Analyse && c.Analysis.Enabled {
		plan := planAnalysis(c, trained/gradients)
		add("update", "gradient analysis: "+plan.String(), plan.Bytes)
	}
	if e.Parts.Analyse && c.Analysis.InUpdate {
		add("update", "shares of the update: a buffer per bucket and one more",
			int64(analysisBuckets(c)+1)*4*trained/gradients)
	}
	if e.Parts.Analyse && c.Components.Enabled {
		what, bytes := planComponents(c, trained/gradients)
		add("update", what, bytes)
	}
	return p
}

// together is how many ranks sample as one.
func (e *Experiment) together() int {
	if e.Parts.Ranks <= 1 || !e.Parts.Play {
		return 1
	}
	return max(e.Config.Engine.TensorParallel, 1)
}

func (e *Experiment) planRollouts(add func(phase, what string, bytes int64)) {
	c, actor := e.Config, e.Policy.Shape
	if c.Rollout.Staleness > 0 && e.Parts.Learn { // beside updates too
		own := add
		add = func(_, what string, bytes int64) { own("always", what, bytes) }
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
	add("rollout", "KV cache", kv)
	if e.Draft != nil { // as many pages
		add("rollout", "KV cache of the draft", kv/kvFloats(headsOfOne(actor, together))*kvFloats(e.Draft.Shape))
	}
	if actor.LoRA.Rank == 0 || together > 1 { // a whole base is packed anyway
		add("rollout", "packed copies of the matrices",
			elementBytes(c)*(bodyMatrices(actor)+tables)/int64(together))
	}
	add("rollout", "logits of a decode step", 4*actor.VocabSize*int64(min(sequences, headRows)))
}

// elementBytes is the size of a number in matrix products, and of keys and values.
func elementBytes(c *config.Config) int64 {
	if Placement(c).Compute == torch.ComputeBF16 {
		return 2
	}
	return 4
}

func planUpdates(c *config.Config, actor torch.ModelConfig, add func(phase, what string, bytes int64)) {
	rows := int64(max(c.Actor.MicroBatchTokens, c.Rollout.MaxLength))
	what := "activations"
	if c.Actor.RecomputeActivations {
		what = "inputs of the blocks"
	}
	add("update", fmt.Sprintf("%s of a micro-batch of %d tokens", what, rows),
		4*rows*keptFloats(actor, elementBytes(c), c.Actor.RecomputeActivations))
	add("update", "work space of a block", 4*rows*workFloats(actor, elementBytes(c),
		c.Actor.RecomputeActivations)+elementBytes(c)*blockMatrices(actor))
	add("update", "logits of a chunk of targets", 4*actor.VocabSize*min(rows,
		max(keptLogits/actor.VocabSize, leastKept), mostKept))
}

// planComponents predicts the memory of measuring the reward components of a step, if the filter keeps every episode.
// How many there are is known where they are named; otherwise three are counted.
func planComponents(c *config.Config, parameters int64) (what string, bytes int64) {
	k, n := c.Components, len(RewardComponents(c))
	if n == 0 {
		n = 3
	}
	if k.Mode == "exact" {
		n++ // what the score holds beside them
		if c.Algorithm.UsesCritic() {
			n++ // what the critic expected
		}
	}
	buffers := gradients.ComponentBuffers(n, len(gradients.LossTerms(Objective(c)))-1, k.Buckets)
	bytes = gradients.ComponentBytes(parameters, buffers, c.Episodes(), k.Permutations)
	if full := gradients.FullBytes(n, parameters); k.Save == "full" && full <= int64(k.SaveMiB)<<20 {
		bytes += full
	}
	return fmt.Sprintf("gradients of the reward components: %d buffers, %d components", buffers, n), bytes
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

// Parameters counts a model's parameters.
func Parameters(m torch.ModelConfig) int64 {
	n := m.VocabSize*m.HiddenSize + m.HiddenSize + bodyMatrices(m)
	if m.Head == torch.HeadLM && !m.TieEmbeddings {
		n += m.VocabSize * m.HiddenSize
	}
	norms := int64(0)
	if !m.Shape.NoInputNorms {
		norms += 2 * m.HiddenSize
	}
	if m.Shape.OutputNorms {
		norms += 2 * m.HiddenSize
	}
	switch {
	case m.QKNorm && m.Shape.WideQKNorm:
		norms += (m.NumHeads + m.NumKVHeads) * m.HeadDim
	case m.QKNorm:
		norms += 2 * m.HeadDim
	}
	if m.QKVBias {
		norms += (m.NumHeads + 2*m.NumKVHeads) * m.HeadDim
	}
	if m.OutBias {
		norms += m.HiddenSize
	}
	n += m.NumLayers * norms
	for layer := range m.NumLayers {
		if f := m.MLPWidth(layer); f > 0 && m.MLPBias {
			n += 2*f + m.HiddenSize
		}
	}
	if m.Head == torch.HeadValue {
		n += m.HiddenSize + 1
	}
	return n
}

// blockMatrices counts the elements of the largest block's projections, bodyMatrices those of all.
func blockMatrices(m torch.ModelConfig) (most int64) {
	for layer := range m.NumLayers {
		most = max(most, layerMatrices(m, layer))
	}
	return most
}

func bodyMatrices(m torch.ModelConfig) (total int64) {
	for layer := range m.NumLayers {
		total += layerMatrices(m, layer)
	}
	return total
}

func layerMatrices(m torch.ModelConfig, layer int64) int64 {
	q, kv := m.NumHeads*m.HeadDim, m.NumKVHeads*m.HeadDim
	n := 2*q + 2*kv + 3*m.MLPWidth(layer)
	if m.Mixes(layer) {
		n += m.Shape.Experts * (1 + 3*m.Shape.ExpertSize)
	}
	return m.HiddenSize * n
}

// widestMLP is the width of the widest MLP that is no expert.
func widestMLP(m torch.ModelConfig) (widest int64) {
	for layer := range m.NumLayers {
		widest = max(widest, m.MLPWidth(layer))
	}
	return widest
}

// keptFloats is what the training forward keeps per row for the backward pass.
func keptFloats(m torch.ModelConfig, bytes int64, recompute bool) int64 {
	perBlock := m.HiddenSize
	if !recompute {
		perBlock = blockFloats(m, bytes)
	}
	return m.NumLayers*perBlock + 3*m.HiddenSize // the last block's output, the final hidden states and their gradient
}

// blockFloats is what a block keeps per row. Gates and values before SwiGLU are kept in the products' type.
func blockFloats(m torch.ModelConfig, bytes int64) int64 {
	q, kv := m.NumHeads*m.HeadDim, m.NumKVHeads*m.HeadDim
	inner := widestMLP(m) + m.Shape.ChosenExperts*m.Shape.ExpertSize
	n := 2*m.HiddenSize + 2*q + 2*kv + m.NumHeads + 2*inner*bytes/4 + m.Shape.Experts + 2
	if m.Shape.OutputNorms {
		n += 2*m.HiddenSize + 2
	}
	return n
}

// workFloats is the scratch of a block's backward pass per row, and with recomputation of its forward pass too.
func workFloats(m torch.ModelConfig, bytes int64, recompute bool) int64 {
	q, kv := m.NumHeads*m.HeadDim, m.NumKVHeads*m.HeadDim
	f, s := widestMLP(m), m.Shape
	n := m.HiddenSize + (2*m.HiddenSize+3*f)*bytes/4 + 3*q + 7*kv + f + s.ChosenExperts*m.HiddenSize + s.Experts
	widened := int64(0) // gates and values in float32 before they are kept
	if bytes < 4 {
		widened = 2 * f
		n += (max(m.HiddenSize, q+2*kv) + q) / 2 // rows in bfloat16, of which float32 is read too
		if s.Experts > 0 {
			n += m.HiddenSize
		}
	}
	if recompute {
		n += blockFloats(m, bytes) + 3*m.HiddenSize + q + 3*kv + f + widened +
			s.ChosenExperts*(m.HiddenSize+s.ExpertSize)
	}
	return n
}

// AnalysisOptions are the configuration's choices in the analysis's terms.
func AnalysisOptions(c *config.Config) gradients.Options {
	return gradients.Options{Analysis: c.Analysis, MiniBatch: c.Actor.MiniBatch, Aggregation: c.Actor.LossAggregation}
}

// analysisGroups is how many groups the analysis has if the filter keeps them all, analysisBuckets how many buckets
// those fill at most.
func analysisGroups(c *config.Config) int { return cmp.Or(c.Analysis.Groups, config.GroupsOf(c.Envs)) }

func analysisBuckets(c *config.Config) int {
	buckets := c.Analysis.NumBuckets
	if c.Analysis.Buckets == "fixed_rv" {
		buckets = 6
	}
	return min(buckets, analysisGroups(c))
}

// planAnalysis predicts the memory of a gradient analysis if the filter keeps every group, which is the most it can
// need.
func planAnalysis(c *config.Config, parameters int64) gradients.Plan {
	return gradients.NewPlan(parameters, len(gradients.LossTerms(Objective(c))), analysisGroups(c), analysisBuckets(c),
		AnalysisOptions(c))
}
