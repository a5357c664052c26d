// Package scale predicts what a run takes on machines that need not be there: memory of every rank (package
// experiment's plan), bytes between ranks, and seconds per phase of a step, from the shapes of the models, the
// configuration and the figures of a device.
//
//	plan.go  known devices, this machine as it is measured, what does not fit and which setting would mend it
//	step.go  the phases of a step: work, time, and what ranks send each other
//
// The formulas, and how far measured runs are from them, are in docs/scale.md.
package scale

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"gyre/internal/nearest"
	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/torch"
)

// Machine is what one rank computes on.
type Machine struct {
	Name      string
	Memory    int64   // bytes; 0 = not known
	FLOPs     float64 // peak of matrix products in the type they are computed in, per second; 0 = not known
	Bandwidth float64 // bytes of memory per second; 0 = not known
	Link      float64 // bytes per second that a rank sends to others of its node
	Network   float64 // and to other nodes
	PerNode   int     // ranks of a node
	Bytes     int64   // of a weight in matrix products

	// Shares of the peaks that are reached: of FLOPs in training and in reading prompts, of Bandwidth in drawing
	// tokens, of Link and Network.
	Train, Prefill, Decode, Wire float64
}

const (
	giga = 1e9
	gib  = 1 << 30
)

// gpu fills in what is assumed of every GPU until somebody measures it.
func gpu(memory int64, tflops, gbytes, link, network float64) Machine {
	return Machine{Memory: memory * gib, FLOPs: tflops * 1e12, Bandwidth: gbytes * giga, Link: link * giga,
		Network: network * giga, PerNode: 8, Bytes: 2,
		Train: 0.35, Prefill: 0.4, Decode: 0.5, Wire: 0.7}
}

// machines are vendors' figures: dense bfloat16 products, memory, one direction of NVLink (or PCIe), and the network
// card that usually belongs to a GPU.
var machines = map[string]Machine{
	"a100-40gb": gpu(40, 312, 1555, 300, 25),
	"a100":      gpu(80, 312, 2039, 300, 25),
	"h100":      gpu(80, 989, 3350, 450, 50),
	"h200":      gpu(141, 989, 4800, 450, 50),
	"b200":      gpu(180, 2250, 8000, 900, 50),
	"l40s":      gpu(48, 362, 864, 32, 25),
	"rtx4090":   gpu(24, 165, 1008, 25, 12.5),
}

// Names of the known devices.
func Names() []string { return append(slices.Sorted(maps.Keys(machines)), "here") }

// Find gives a device by its name; "here" measures this machine's CPU as one of so many ranks on it.
func Find(name string, ranksHere int, memory int64) (Machine, error) {
	if strings.ToLower(name) == "here" {
		bandwidth, flops, err := torch.Measure(torch.ComputeF32)
		if err != nil {
			return Machine{}, fmt.Errorf("measuring this machine: %w", err)
		}
		m, n := Here(ranksHere, memory), float64(max(ranksHere, 1))
		m.FLOPs, m.Bandwidth = flops/n, bandwidth/n
		return m, nil
	}
	m, ok := machines[strings.ToLower(name)]
	if !ok {
		return m, fmt.Errorf("no device %q is known%s: expected one of %s (here: this machine, measured)", name,
			nearest.Hint(name, Names()), strings.Join(Names(), ", "))
	}
	m.Name = strings.ToLower(name)
	return m, nil
}

// Here is this machine's CPU as one of so many ranks on it, before its speed is measured: for plans of memory.
func Here(ranksHere int, memory int64) Machine {
	n := max(ranksHere, 1)
	return Machine{Name: "here", Memory: memory / int64(n), Link: loopback * giga, Network: loopback * giga,
		PerNode: n, Bytes: 4, Train: 0.5, Prefill: 0.7, Decode: 0.5, Wire: 1}
}

// loopback is what two ranks of one machine send each other over Gloo, in GB/s.
const loopback = 1.0

// Plan is what a run would take on so many of a machine.
type Plan struct {
	Step    Step
	Shard   string                // what the ranks share out
	Auto    bool                  // the plan chose that
	Memory  experiment.MemoryPlan // of one rank
	Advice  []string              // settings that would make it fit, each for itself; empty when it fits
	Notes   []string
	Fits    bool
	Machine Machine
}

// New plans an opened experiment over so many ranks.
func New(e *experiment.Experiment, c *config.Config, ranks int, m Machine) (Plan, error) {
	if c.FSDP.Replicas > 1 && ranks%c.FSDP.Replicas != 0 {
		return Plan{}, fmt.Errorf("fsdp.replicas = %d does not divide %d ranks", c.FSDP.Replicas, ranks)
	}
	if n := c.Engine.TensorParallel; n > 1 && ranks%n != 0 {
		return Plan{}, fmt.Errorf("engine.tensor_parallel = %d does not divide %d ranks", n, ranks)
	}
	settled, err := e.With(c, ranks).LeastSharing(ranks, m.Memory)
	if err != nil && !errors.Is(err, experiment.ErrTooLarge) {
		return Plan{}, err
	}
	auto := c.FSDP.Shard == experiment.AutoShard && ranks > 1
	c = settled.Config
	p := Plan{Step: NewStep(e, c, ranks, m), Shard: c.FSDP.Shard, Auto: auto, Memory: settled.PlanMemory(), Machine: m}
	p.Fits = p.Memory.Fits(m.Memory)
	if !p.Fits {
		p.Advice = advice(e, c, ranks, m)
	}
	p.note(c, ranks)
	return p, nil
}

func memory(e *experiment.Experiment, c *config.Config, ranks int) experiment.MemoryPlan {
	return e.With(c, ranks).PlanMemory()
}

// advice tries one setting after the other, and then what needs several.
func advice(e *experiment.Experiment, c *config.Config, ranks int, m Machine) (out []string) {
	try := func(name string, ranks int, change func(*config.Config)) bool {
		other := *c
		change(&other)
		p := memory(e, &other, ranks)
		if p.Fits(m.Memory) {
			out = append(out, fmt.Sprintf("%s: %.1f GiB", name, float64(p.Peak())/gib))
			return true
		}
		return false
	}
	sharded := func(x *config.Config) { x.FSDP.Shard, x.FSDP.Replicas = "full", 1 }
	lean := func(x *config.Config) {
		x.Actor.RecomputeActivations = true
		x.Actor.MicroBatchTokens = min(x.Actor.MicroBatchTokens, x.Rollout.MaxLength)
	}
	try("actor.recompute_activations=true", ranks, func(x *config.Config) { x.Actor.RecomputeActivations = true })
	if c.FSDP.Shard == "none" {
		try("fsdp.shard=optimizer", ranks, func(x *config.Config) { x.FSDP.Shard = "optimizer" })
	}
	if c.FSDP.Shard != "full" || c.FSDP.Replicas > 1 {
		try("fsdp.shard=full", ranks, sharded)
	}
	if x := *c; split(e, &x, ranks, m) {
		try(fmt.Sprintf("engine.tensor_parallel=%d", x.Engine.TensorParallel), ranks, func(y *config.Config) { *y = x })
	}
	if kv := keep(e, c, ranks, m); kv > 0 {
		try(fmt.Sprintf("engine.kv_mib=%d", kv), ranks, func(x *config.Config) { x.Engine.KVMiB = kv })
	}
	if len(out) > 0 {
		return out
	}
	if try("fsdp.shard=full, actor.recompute_activations=true", ranks, func(x *config.Config) { sharded(x); lean(x) }) {
		return out
	}
	for n := ranks; n <= 4096; n *= 2 {
		name := fmt.Sprintf("%d ranks with fsdp.shard=full, actor.recompute_activations=true", n)
		kv := keep(e, c, n, m)
		if try(name, n, func(x *config.Config) { sharded(x); lean(x) }) {
			return out
		}
		if kv > 0 && try(fmt.Sprintf("%s, engine.kv_mib=%d", name, kv), n,
			func(x *config.Config) { sharded(x); lean(x); x.Engine.KVMiB = kv }) {
			return out
		}
		x := *c
		sharded(&x)
		lean(&x)
		if split(e, &x, n, m) {
			try(fmt.Sprintf("%s, engine.tensor_parallel=%d", name, x.Engine.TensorParallel), n,
				func(y *config.Config) { *y = x })
			return out
		}
	}
	return []string{"no setting: a rank's share of the weights for sampling, or one episode's activations, is larger " +
		"than this device; take a larger one"}
}

// split lets the fewest ranks sample together with which the rest of a configuration fits, if there are any.
func split(e *experiment.Experiment, c *config.Config, ranks int, m Machine) bool {
	for n := 2; n <= ranks; n++ {
		other := *c
		other.Engine.TensorParallel = n
		if ranks%n == 0 && e.Policy.Shape.CheckTensorParallel(n) == nil && memory(e, &other, ranks).Fits(m.Memory) {
			*c = other
			return true
		}
	}
	return false
}

// keep is a budget of keys and values that would leave room for the rest of a rollout, 0 if that is too little to
// play with.
func keep(e *experiment.Experiment, c *config.Config, ranks int, m Machine) int {
	other := *c
	other.Engine.KVMiB = 1
	rest := float64(m.Memory)*(1-experiment.Spare) - float64(memory(e, &other, ranks).Phase("rollout"))
	budget, shape := int(rest)>>20, e.Policy.Shape
	perToken := 2 * m.Bytes * shape.NumLayers * shape.NumKVHeads * shape.HeadDim
	if least := float64(int64(c.Rollout.MaxLength)*perToken) / (1 << 20); float64(budget) < 4*least {
		return 0
	}
	return budget
}

// note says what is worth changing although the run fits.
func (p *Plan) note(c *config.Config, ranks int) {
	groups := config.GroupsOf(c.Envs)
	players, who := ranks, "ranks"
	if n := c.Engine.TensorParallel; n > 1 {
		players, who = ranks/n, fmt.Sprintf("teams of %d ranks", n)
	}
	if groups%players != 0 {
		most := math.Ceil(float64(groups) / float64(players))
		p.Notes = append(p.Notes, fmt.Sprintf("%d groups over %d %s: some play %.0f, others fewer; groups "+
			"are not split", groups, players, who, most))
	}
	compute, wire := 0.0, 0.0
	for _, x := range p.Step.Phases {
		compute, wire = compute+x.Compute, wire+x.Seconds-x.Compute
	}
	if share := wire / (compute + wire); share > 0.2 {
		p.Notes = append(p.Notes, fmt.Sprintf("%.0f%% of the step is sending: larger actor.micro_batch_tokens, "+
			"fsdp.wire_dtype=bfloat16, fsdp.replicas (copies within a node) or fewer ranks would lower it", 100*share))
	}
}

// String is the plan for people.
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "memory of each of %d ranks:\n%s%s", p.Step.Ranks, p.Memory, p.Step)
	if p.Auto {
		fmt.Fprintf(&b, "fsdp.shard = \"auto\": %s\n", p.Shard)
	}
	if have := p.Machine.Memory; have > 0 {
		word := "fits"
		if !p.Fits {
			word = "does NOT fit"
		}
		fmt.Fprintf(&b, "%.1f GiB %s in the %.0f GiB of %s (%.0f%% of it is left alone)\n",
			float64(p.Memory.Peak())/gib, word, float64(have)/gib, p.Machine.Name, 100*experiment.Spare)
	}
	for _, a := range p.Advice {
		fmt.Fprintf(&b, "  would do: %s\n", a)
	}
	for _, n := range p.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	return b.String()
}
