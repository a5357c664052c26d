package scale

import (
	"fmt"
	"math"
	"strings"
	"text/tabwriter"

	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/torch"
)

// Phase is a part of a step: what one rank computes and sends, and how long that takes.
type Phase struct {
	Name    string
	FLOPs   float64
	Bytes   float64 // of its memory that it must read, where that decides
	Sent    float64 // bytes to other ranks
	Compute float64 // seconds
	Wire    float64 // seconds
	Seconds float64 // Compute, and of Wire what does not go on meanwhile
}

// Step is the plan of a training step.
type Step struct {
	Ranks    int
	Machine  Machine
	Episodes int     // of all ranks
	Tokens   float64 // of an episode
	Replies  float64 // of them sampled
	Phases   []Phase
}

// total adds the phases up.
func (s Step) total() Phase {
	sum := Phase{Name: "in all"}
	for _, p := range s.Phases {
		sum.FLOPs, sum.Bytes, sum.Sent = sum.FLOPs+p.FLOPs, sum.Bytes+p.Bytes, sum.Sent+p.Sent
		sum.Compute, sum.Wire, sum.Seconds = sum.Compute+p.Compute, sum.Wire+p.Wire, sum.Seconds+p.Seconds
	}
	return sum
}

// turnPrompt is how many tokens an environment is assumed to say per turn: nothing in a configuration tells.
const turnPrompt = 150

// NewStep plans a training step of an opened experiment. Episodes are assumed to use the whole of their limits:
// max_turns replies of max_tokens, as far as max_length goes.
func NewStep(e *experiment.Experiment, c *config.Config, ranks int, m Machine) Step {
	s := Step{Ranks: ranks, Machine: m, Episodes: c.Episodes()}
	for _, env := range c.Envs {
		tokens := c.Rollout.MaxTokens
		if env.MaxTokens > 0 {
			tokens = env.MaxTokens
		}
		replies := float64(env.MaxTurns * tokens)
		all := math.Min(replies+float64(env.MaxTurns*turnPrompt), float64(c.Rollout.MaxLength))
		share := float64(env.Groups*env.GroupSize) / float64(max(s.Episodes, 1))
		s.Tokens += share * all
		s.Replies += share * math.Min(replies, all-turnPrompt)
	}
	p := planner{Step: &s, config: c, machine: m, ranks: float64(ranks), set: float64(max(ranks/c.FSDP.Replicas, 1)),
		wire: 4}
	if c.FSDP.WireDType == "bfloat16" {
		p.wire = 2
	}
	p.rollout(e.Policy.Shape)
	tokens := float64(s.Episodes) * s.Tokens / p.ranks // of a rank
	if c.Actor.RecomputeLogprobs || m.Bytes < 4 {      // only float32 kernels are exact
		p.pass("old log-probs", e.Policy.Shape, tokens)
	}
	if e.Reference != nil {
		p.pass("reference log-probs", e.Reference.Shape, tokens)
	}
	if e.Critic != nil {
		p.pass("values", e.Critic.Shape, tokens)
		p.update("critic update", e.Critic.Shape, tokens, c.Critic.MiniBatch, c.Critic.Epochs)
	}
	p.update("actor update", e.Policy.Shape, tokens, c.Actor.MiniBatch, c.Actor.Epochs)
	return s
}

type planner struct {
	*Step
	config     *config.Config
	machine    Machine
	ranks, set float64 // all ranks, and those that share one copy of the weights
	wire       float64 // bytes of a number between ranks
}

// add ends a phase; hidden says whether sending goes on beside computing.
func (p *planner) add(x Phase, hidden bool) {
	rate := p.machine.Link
	if int(p.ranks) > p.machine.PerNode {
		rate = p.machine.Network
	}
	x.Wire = x.Sent / (rate * p.machine.Wire)
	x.Seconds = x.Compute + x.Wire
	if hidden {
		x.Seconds = math.Max(x.Compute, x.Wire)
	}
	p.Phases = append(p.Phases, x)
}

// matrices is a model's weight in every token's products: its parameters but for the embedding, and the head, which
// only sampled tokens meet.
func matrices(m torch.ModelConfig) (blocks, head float64) {
	n := float64(experiment.Parameters(m)) - float64(m.VocabSize*m.HiddenSize)
	if m.Head == torch.HeadLM {
		head = float64(m.VocabSize * m.HiddenSize)
		if !m.TieEmbeddings {
			n -= head
		}
	}
	return n, head
}

// units are what is fetched at a time: the root (embedding, final norm, head) and a block.
func units(m torch.ModelConfig) (root, block float64) {
	root = float64(m.VocabSize*m.HiddenSize + m.HiddenSize)
	switch {
	case m.Head == torch.HeadValue:
		root += float64(m.HiddenSize + 1)
	case !m.TieEmbeddings:
		root += float64(m.VocabSize * m.HiddenSize)
	}
	return root, (float64(experiment.Parameters(m)) - root) / float64(m.NumLayers)
}

// attention is the work of scores and sums over a history, per token of an episode: on average half of it.
func attention(m torch.ModelConfig, length float64) float64 {
	return 4 * float64(m.NumLayers*m.NumHeads*m.HeadDim) * length / 2
}

func (p *planner) rollout(m torch.ModelConfig) {
	blocks, head := matrices(m)
	n := math.Max(float64(p.config.Engine.TensorParallel), 1) // ranks that sample together, each 1/n of everything
	perEpisode := float64(p.Episodes) / p.ranks * n
	weights := (blocks + head) * float64(p.machine.Bytes) / n
	// What they show one another of a token: attention's outputs, the feed-forward's inner ones, and what both add to
	// the residual stream.
	shown := float64(m.NumLayers*(m.NumHeads*m.HeadDim+m.IntermediateSize+2*m.HiddenSize)) * 4 * (n - 1) / n
	if p.config.FSDP.Shard == "full" && p.set > 1 {
		p.add(Phase{Name: "weights for sampling", Sent: p.fetched(m)}, false)
	}
	prompts := perEpisode * (p.Tokens - p.Replies)
	work := prompts * (2*blocks + attention(m, p.Tokens)) / n
	p.add(Phase{Name: "rollout: prompts", FLOPs: work, Sent: prompts * shown,
		Compute: work / (p.machine.FLOPs * p.machine.Prefill)}, false)
	// So many decode together; one token of each per pass over the weights, and each reads its history.
	together := math.Min(math.Ceil(perEpisode), float64(p.config.Engine.MaxSequences))
	rounds := math.Ceil(perEpisode/together) * p.Replies
	history := together * p.Tokens / 2 * float64(2*m.NumLayers*m.NumKVHeads*m.HeadDim) * float64(p.machine.Bytes) / n
	work = perEpisode * p.Replies * (2*(blocks+head) + attention(m, p.Tokens)) / n
	read := rounds * (weights + history)
	p.add(Phase{Name: "rollout: replies", FLOPs: work, Bytes: read, Sent: perEpisode * p.Replies * shown,
		Compute: math.Max(read/(p.machine.Bandwidth*p.machine.Decode), work/(p.machine.FLOPs*p.machine.Prefill))},
		false)
}

// micro is in how many passes a rank goes through so many tokens; episodes are not cut.
func (p *planner) micro(tokens float64) float64 {
	return math.Max(math.Ceil(tokens/math.Max(float64(p.config.Actor.MicroBatchTokens), p.Tokens)), 1)
}

// fetched is what a rank gets of the weights of others to see them once.
func (p *planner) fetched(m torch.ModelConfig) float64 {
	return float64(experiment.Parameters(m)) * p.wire * (p.set - 1) / p.set
}

// pass is a forward pass for log-probs or values.
func (p *planner) pass(name string, m torch.ModelConfig, tokens float64) {
	blocks, head := matrices(m)
	work := tokens*(2*blocks+attention(m, p.Tokens)) + tokens*p.Replies/p.Tokens*2*head
	sent := 0.0
	if p.config.FSDP.Shard == "full" {
		sent = p.micro(tokens) * p.fetched(m)
	}
	p.add(Phase{Name: name, FLOPs: work, Sent: sent, Compute: work / (p.machine.FLOPs * p.machine.Train)},
		p.config.FSDP.Prefetch > 0)
}

// update is forward, backward and optimizer steps.
func (p *planner) update(name string, m torch.ModelConfig, tokens float64, miniBatch, epochs int) {
	blocks, head := matrices(m)
	forward := tokens*(2*blocks+attention(m, p.Tokens)) + tokens*p.Replies/p.Tokens*2*head
	passes := 3.0
	if p.config.Actor.RecomputeActivations {
		passes++
	}
	steps := math.Ceil(float64(p.Episodes)/float64(miniBatch)) * float64(epochs)
	work := forward * passes * float64(epochs)
	n := float64(experiment.Parameters(m))
	sent, hidden := 0.0, false
	switch p.config.FSDP.Shard {
	case "full":
		// Every micro-batch fetches the weights twice, but for what stays from its forward to its backward pass, and
		// hands its gradient over.
		each := p.micro(tokens * float64(epochs) / steps)
		root, block := units(m)
		sent = steps * each * (3*n - root - block) * p.wire * (p.set - 1) / p.set
		if copies := p.ranks / p.set; copies > 1 { // its sum goes to every other copy in float32
			sent += steps * each * n / p.set * 4 * (copies - 1)
		}
		hidden = p.config.FSDP.Prefetch > 0
	default: // gradients are added up, and weights or sums come back
		sent = steps * 2 * n * p.wire * (p.ranks - 1) / p.ranks
	}
	p.add(Phase{Name: name, FLOPs: work, Sent: sent, Compute: work / (p.machine.FLOPs * p.machine.Train)}, hidden)
}

func (s Step) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "a step of %d episodes of at most %.0f tokens (%.0f sampled) on %d × %s, per rank:\n", s.Episodes,
		s.Tokens, s.Replies, s.Ranks, s.Machine.Name)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "  phase\tTFLOP\tGB sent\tcompute s\tsending s\tin all s\t\n")
	for _, p := range append(s.Phases, s.total()) {
		fmt.Fprintf(w, "  %s\t%.4g\t%.3g\t%.3g\t%.3g\t%.3g\t\n", p.Name, p.FLOPs/1e12, p.Sent/giga, p.Compute, p.Wire,
			p.Seconds)
	}
	w.Flush()
	return b.String()
}
