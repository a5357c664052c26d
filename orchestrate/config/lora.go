package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"gyre/internal/nearest"
	"gyre/internal/settings"
)

// attentionModules and mlpModules are the linear layers of a block, in the order of the forward pass, and expertModules
// those of all experts of a layer, as PEFT's target_parameters names them.
var (
	attentionModules = []string{"q_proj", "k_proj", "v_proj", "o_proj"}
	mlpModules       = []string{"gate_proj", "up_proj", "down_proj"}
	expertModules    = []string{"experts.gate_up_proj", "experts.down_proj"}
)

// Targets are linear layers of the blocks, the token embedding and the head, by name or by the name of a group of them.
type Targets []string

var _ settings.Decoder = (*Targets)(nil)

// targetGroups are what the names of groups stand for.
var targetGroups = map[string][]string{"all": slices.Concat(attentionModules, mlpModules),
	"attention": attentionModules, "mlp": mlpModules, "experts": expertModules, "embedding": {"embed_tokens"},
	"head": {"lm_head"}}

// modules are all that may get adapters, in the order of the forward pass but for the embedding.
var modules = slices.Concat(targetGroups["all"], expertModules, targetGroups["embedding"], targetGroups["head"])

// targetNames are all names that lora.targets takes, for messages.
var targetNames = slices.Concat([]string{"all", "attention", "mlp", "experts", "embedding", "head"}, modules)

// DecodeSetting reads one name or a list of names.
func (t *Targets) DecodeSetting(value any) error {
	list, isList := value.([]any)
	if !isList {
		list = []any{value}
	}
	if len(list) == 0 {
		return errors.New("expected at least one name; lora.rank = 0 turns adapters off")
	}
	*t = nil
	for _, element := range list {
		name, isText := element.(string)
		if !isText {
			return fmt.Errorf("expected names such as \"all\" or [\"q_proj\", \"v_proj\"], got %v", element)
		}
		if !slices.Contains(targetNames, name) {
			return fmt.Errorf("%q gets no adapter: expected all, attention, mlp, experts, embedding, head or names "+
				"among %v%s", name, modules, nearest.Hint(name, targetNames))
		}
		*t = append(*t, name)
	}
	return nil
}

// Modules are the names of what gets adapters, each once: linear layers in the order of the forward pass, then
// embedding and head.
func (t Targets) Modules() []string {
	var list []string
	for _, module := range modules {
		if slices.ContainsFunc(t, func(name string) bool {
			return name == module || slices.Contains(targetGroups[name], module)
		}) {
			list = append(list, module)
		}
	}
	return list
}

// Wanted tells whether adapters are trained, in place of all weights.
func (l LoRA) Wanted() bool { return l.Rank > 0 }

// AdapterSeeds are those of the policy's adapter and of the critic's: new values and what dropout drops follow from
// them.
func (c *Config) AdapterSeeds() (policy, critic uint64) {
	seed := cmp.Or(c.LoRA.Seed, c.Run.Seed)
	return seed, seed + 1<<32
}

// useBaseDType makes the type of products that of a base which is kept in it.
func (c *Config) useBaseDType() {
	if base := c.Model.BaseDType; c.LoRA.Wanted() && c.Model.DType == "auto" && base != "auto" && base != "int8" {
		c.Model.DType = base
	}
}

// check reports adapters that are described but not asked for.
func (c *Config) checkLoRA(defined func(path string) bool, report func(key, format string, args ...any)) {
	if defined("lora") && !defined("lora.rank") {
		report("lora.rank", "missing: [lora] describes adapters; give their rank, or 0 to train all weights")
	}
	if c.LoRA.Adapter != "" && !c.LoRA.Wanted() {
		report("lora.adapter", "a run that goes on from an adapter trains it: set lora.rank to its rank")
	}
	if c.LoRA.Dropout > 0 && c.LoRA.Wanted() {
		if c.Model.Device != "cpu" {
			report("lora.dropout", "is computed on the CPU only, but model.device = %q: leave it out", c.Model.Device)
		}
		ofExperts := func(module string) bool { return slices.Contains(expertModules, module) }
		if slices.ContainsFunc(c.LoRA.Targets.Modules(), ofExperts) {
			report("lora.dropout", "adapters of experts have none (nor have PEFT's): leave it out, or experts out of "+
				"lora.targets")
		}
	}
	switch base, m := c.Model.BaseDType, &c.Model; {
	case base == "auto":
	case !c.LoRA.Wanted():
		report("model.base_dtype", "%s is for the frozen base of adapters, and all weights are trained: set lora.rank",
			base)
	case base == "int8" && c.Engine.TensorParallel > 1:
		report("engine.tensor_parallel", "ranks that sample together cut their parts from a base in float32, but "+
			"model.base_dtype = \"int8\": set one of them to its default")
	case base == "int8" && m.Device != "cpu":
		report("model.base_dtype", "int8 is computed on the CPU only, but model.device = %q", m.Device)
	case base != "int8" && m.DType != base:
		report("model.base_dtype", "a base in %s has products in %s, but model.dtype = %q", base, base, m.DType)
	}
}

// Scale is the factor of an adapter's product.
func (l LoRA) Scale() float64 {
	if l.RSLoRA {
		return l.Alpha / math.Sqrt(float64(l.Rank))
	}
	return l.Alpha / float64(l.Rank)
}

// LearningRate is a learning rate of the configuration as the optimizer takes it: with adapters times lr_scale.
func (l LoRA) LearningRate(lr float64) float64 {
	if !l.Wanted() {
		return lr
	}
	return lr * l.LRScale
}

// InPasses is the dropout of an update's passes: without adapters none.
func (l LoRA) InPasses() float64 {
	if !l.Wanted() {
		return 0
	}
	return l.Dropout
}

// fullTuningLR is the rate below which actor.lr looks like one for all weights: RL tunes them at about 1e-6, and
// adapters learn best at about 10 times that ("LoRA Without Regret", Schulman et al., Thinking Machines Lab, 2025).
const fullTuningLR = 5e-6

func (c *Config) warnLoRA(warn func(bool, string, ...any)) {
	l := c.LoRA
	warn(l.Wanted() && c.Actor.LR > 0 && l.LearningRate(c.Actor.LR) < fullTuningLR,
		"actor.lr = %v looks like full tuning's: adapters learn best at about 10 times its rate (\"LoRA Without "+
			"Regret\", Thinking Machines Lab, 2025); raise it, or set lora.lr_scale = 10", c.Actor.LR)
}
