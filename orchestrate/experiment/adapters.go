package experiment

import (
	"cmp"
	"fmt"
	"strings"

	"gyre/orchestrate/config"
	"gyre/orchestrate/model/checkpoint"
	"gyre/torch"
)

// LoRA is what [lora] describes; rank 0 for none.
func LoRA(l config.LoRA) torch.LoRA {
	if l.Rank == 0 {
		return torch.LoRA{}
	}
	return torch.LoRA{Rank: int32(l.Rank), Targets: torch.TargetsOf(l.Targets.Modules()), Scale: l.Scale()}
}

// adapt makes those models adapters that learn, as [lora] says: new ones, or those of a checkpoint or of model.path.
func (e *Experiment) adapt() (problems []error) {
	want := LoRA(e.Config.LoRA)
	if e.Config.Algorithm.RouterAuxLossCoef > 0 && e.Policy != nil && e.Policy.Shape.Shape.Experts == 0 {
		problems = append(problems, fmt.Errorf("algorithm.router_aux_loss_coef: a %s model has no experts: leave it "+
			"out", e.Policy.Shape.Family))
	}
	learning := []struct {
		who   string
		model *Model
		seed  uint64
	}{{"policy", e.Policy, 0}, {"critic", e.Critic, 1}}
	for _, l := range learning {
		m := l.model
		if m == nil {
			continue
		}
		have, want := m.Shape.LoRA, want
		if m.Shape.Head == torch.HeadValue {
			want.Targets &^= torch.TargetsOf([]string{"lm_head"}) // it has a head of its own
		}
		if have.Rank == 0 && want.Rank == 0 {
			continue
		}
		m.Seed = cmp.Or(e.Config.LoRA.Seed, e.Config.Run.Seed) + l.seed<<32
		for _, target := range want.Targets.Names() {
			if strings.HasPrefix(target, "experts.") && m.Shape.Shape.Experts == 0 {
				problems = append(problems, fmt.Errorf("lora.targets: %s: a %s model has no experts: leave it out",
					target, m.Shape.Family))
			}
			shape := checkpoint.Config{ModelConfig: m.Shape}
			if fused := shape.FusedModule(target); have.Rank == 0 && fused != "" {
				instead := "leave it out"
				if m.Shape.Shape.Experts > 0 {
					instead = `expected lora.targets = ["attention", "experts"] or names of these`
				}
				problems = append(problems, fmt.Errorf("lora.targets: %s of a %s model lies in its %s, beside which "+
					"there is no adapter of it alone: %s", target, m.Shape.Family, fused, instead))
			}
		}
		if have.Rank == 0 {
			m.Shape.LoRA = want
		} else if want.Rank == 0 {
			problems = append(problems, fmt.Errorf("the %s in %s is an adapter of rank %d: set lora.rank = %d to "+
				"train it further, or make a model of it with gyre model merge", l.who, m.Adapter, have.Rank,
				have.Rank))
		} else if have != want {
			problems = append(problems, fmt.Errorf("the %s in %s is an adapter of rank %d and scale %g of %s, but "+
				"[lora] describes one of rank %d and scale %g of %s: a run takes it further as it is", l.who, m.Adapter,
				have.Rank,
				have.Scale, strings.Join(have.Targets.Names(), ", "), want.Rank, want.Scale,
				strings.Join(want.Targets.Names(), ", ")))
		}
	}
	if e.Critic != nil && e.Critic.Shape.LoRA.Rank > 0 && e.Critic.Dir != e.Policy.Dir {
		problems = append(problems, fmt.Errorf("the critic's base is %s, the policy's %s: with [lora] both are "+
			"adapters beside the same one; leave critic.path out", e.Critic.Dir, e.Policy.Dir))
	}
	return problems
}

// Trained counts the parameters of a model that learn: of an adapter A and B, and a value head.
func Trained(m torch.ModelConfig) int64 {
	if m.LoRA.Rank == 0 {
		return Parameters(m)
	}
	h, q, kv, f := m.HiddenSize, m.NumHeads*m.HeadDim, m.NumKVHeads*m.HeadDim, m.IntermediateSize
	inAndOut := map[string]int64{"q_proj": h + q, "k_proj": h + kv, "v_proj": h + kv, "o_proj": q + h,
		"gate_proj": h + f, "up_proj": h + f, "down_proj": f + h}
	expert := map[string]int64{"experts.gate_up_proj": h + 2*m.Shape.ExpertSize,
		"experts.down_proj": m.Shape.ExpertSize + h}
	total := int64(0)
	for _, name := range m.LoRA.Targets.Names() {
		if in, ok := inAndOut[name]; ok {
			total += m.NumLayers * in
		} else if in, ok := expert[name]; ok {
			total += m.Mixtures() * m.Shape.Experts * in
		} else {
			total += m.VocabSize + h
		}
	}
	total *= int64(m.LoRA.Rank)
	if m.Head == torch.HeadValue {
		total += h + 1
	}
	return total
}
