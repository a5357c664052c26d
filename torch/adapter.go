package torch

/*
#include "gyre.h"
*/
import "C"

// LoRA (gyre_lora) describes a low-rank adapter (Hu et al. 2022): beside each target y = W x becomes W x +
// Scale · B A x with A of Rank rows and B of Rank columns. Rank 0 stands for none.
type LoRA struct {
	Rank    int32
	Targets Targets
	Scale   float64
}

// Dropout (gyre_dropout) is what the passes of an update drop of the inputs of an adapter's modules but the embedding:
// each number with this probability, as a function of Key, the layer, the module and the tokens up to its own, whatever
// way sequences are packed. What is kept is divided by 1 - Probability. Adapters of experts have none, and no backend
// but the CPU's.
type Dropout struct {
	Probability float64 // below 1; 0: nothing
	Key         uint64
}

// Targets are modules that an adapter lies beside, as a set of bits.
type Targets uint32

// TargetNames are the names of modules, in the order of the forward pass.
var TargetNames = []string{"embed_tokens", "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
	"experts.gate_up_proj", "experts.down_proj", "lm_head"}

var targets = map[string]Targets{"q_proj": C.GYRE_LORA_Q, "k_proj": C.GYRE_LORA_K, "v_proj": C.GYRE_LORA_V,
	"o_proj": C.GYRE_LORA_O, "gate_proj": C.GYRE_LORA_GATE, "up_proj": C.GYRE_LORA_UP, "down_proj": C.GYRE_LORA_DOWN,
	"experts.gate_up_proj": C.GYRE_LORA_EXPERTS_GATE_UP, "experts.down_proj": C.GYRE_LORA_EXPERTS_DOWN,
	"embed_tokens": C.GYRE_LORA_EMBED, "lm_head": C.GYRE_LORA_HEAD}

// TargetsOf is the set of some of TargetNames; other names are left out.
func TargetsOf(names []string) (set Targets) {
	for _, name := range names {
		set |= targets[name]
	}
	return set
}

// Names are those of the set, in the order of TargetNames.
func (t Targets) Names() (names []string) {
	for _, name := range TargetNames {
		if t&targets[name] != 0 {
			names = append(names, name)
		}
	}
	return names
}

// NewAdapter makes an adapter beside a base as a model of its own: its parameters are A and B of every target (and with
// HeadValue that head's), under the names that PEFT gives them without its prefix "base_model.model.". They are zero,
// to be filled through [Model.Parameters] and then [Model.Touch]; gradients, optimizers, checkpoints and engines made
// from it are of them. The base, which may be frozen, is shared, is not changed, and stays in memory until the adapter
// is closed, also where it has been closed itself.
func NewAdapter(base *Model, lora LoRA, head Head) (*Model, error) {
	return adapter(base, lora, head).build(nil)
}

// NewShardedAdapter is [NewAdapter] on the ranks of a group, as [NewShardedModel] is of a model. The base is whole on
// every rank, or with ShardFull may be sharded as well.
func NewShardedAdapter(base *Model, lora LoRA, head Head, group *Group, s ShardConfig) (*Model, error) {
	return adapter(base, lora, head).over(group, s)
}

func adapter(base *Model, lora LoRA, head Head) *Model {
	m := &Model{Config: base.Config, base: base}
	m.Config.LoRA, m.Config.Head, m.Config.Frozen = lora, head, false
	return m
}
