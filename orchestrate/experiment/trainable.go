package experiment

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"gyre/orchestrate/config"
	"gyre/orchestrate/model/checkpoint"
	"gyre/orchestrate/model/checkpoint/peft"
	"gyre/torch"
)

// TrainableOf is the set of parameters that a configuration trains of the model in a directory; a new one follows from
// the seed.
func TrainableOf(c *config.Config, dir string, seed uint64) checkpoint.Trainable {
	if l := c.LoRA; l.Wanted() {
		return checkpoint.Adapter{Seed: seed,
			LoRA:  torch.LoRA{Rank: int32(l.Rank), Targets: torch.TargetsOf(l.Targets.Modules()), Scale: l.Scale()},
			Saved: peft.Config{Base: dir, Alpha: l.Alpha, RSLoRA: l.RSLoRA, Dropout: l.Dropout}}
	}
	return checkpoint.AllWeights{Source: c.Model.Path, DType: torch.F32}
}

// openAdapter reads what a directory in PEFT's layout says of its adapter. One that can only be merged is, in memory:
// such a model samples and scores.
func openAdapter(dir, base string, head torch.Head, on torch.Placement) (*Model, error) {
	m, err := OpenModel(base, head, on)
	if err != nil {
		return nil, fmt.Errorf("the base model of the adapter in %s: %w", dir, err)
	}
	adapted, err := m.WithAdapter(dir)
	if errors.As(err, new(*peft.MergeOnlyError)) && head == torch.HeadLM {
		m.merged = dir
		return m, nil
	}
	return adapted, err
}

// WithAdapter is a base model with the adapter in dir, which is in PEFT's layout, whichever base that one names.
func (m *Model) WithAdapter(dir string) (*Model, error) {
	have, adapted := m.Trains.(checkpoint.Adapter)
	if adapted || m.merged != "" {
		return nil, fmt.Errorf("%s: its base model %s is an adapter itself, expected a model", dir,
			cmp.Or(m.merged, have.Dir))
	}
	if err := checkpoint.VerifySettings(dir); err != nil {
		return nil, err
	}
	set, err := checkpoint.OpenAdapter(dir, m.Dir, checkpoint.Config{ModelConfig: m.Shape})
	if err != nil {
		return nil, err
	}
	beside := *m
	beside.Trains = set
	return &beside, nil
}

// Base is the model without its adapter.
func (m *Model) Base() *Model {
	base := *m
	base.Trains = checkpoint.AllWeights{}
	return &base
}

// train gives policy and critic the sets that the configuration trains of them: new ones, or those of a checkpoint or
// of model.path.
func (e *Experiment) train() (problems []error) {
	if e.Config.Algorithm.RouterAuxLossCoef > 0 && e.Policy.Shape.Shape.Experts == 0 {
		problems = append(problems, fmt.Errorf("algorithm.router_aux_loss_coef: a %s model has no experts: leave it "+
			"out", e.Policy.Shape.Family))
	}
	policy, critic := e.Config.AdapterSeeds()
	problems = append(problems, e.Policy.train("policy", TrainableOf(e.Config, e.Policy.Dir, policy))...)
	if e.Critic == nil {
		return problems
	}
	problems = append(problems, e.Critic.train("critic", TrainableOf(e.Config, e.Critic.Dir, critic))...)
	if e.Critic.Trains.Base() != "" && e.Critic.Dir != e.Policy.Dir {
		problems = append(problems, fmt.Errorf("the critic's base is %s, the policy's %s: with [lora] both are "+
			"adapters beside the same one; leave critic.path out", e.Critic.Dir, e.Policy.Dir))
	}
	return problems
}

// train makes the model one of which a set is trained. An adapter that it has already is taken further.
func (m *Model) train(who string, set checkpoint.Trainable) (problems []error) {
	have, adapted := m.Trains.(checkpoint.Adapter)
	want, adapts := set.(checkpoint.Adapter)
	m.Trains = set
	if m.merged != "" {
		return []error{fmt.Errorf("the %s in %s is an adapter that trains more than A and B: make a model of it with "+
			"gyre model merge", who, m.merged)}
	}
	if !adapts && !adapted {
		return nil
	}
	if !adapts {
		return []error{fmt.Errorf("the %s in %s is an adapter of rank %d: set lora.rank = %d to train it further, or "+
			"make a model of it with gyre model merge", who, have.Dir, have.LoRA.Rank, have.LoRA.Rank)}
	}
	if m.Shape.Head == torch.HeadValue {
		want.LoRA.Targets &^= torch.TargetsOf([]string{"lm_head"}) // it has a head of its own
	}
	want.Dir = have.Dir
	m.Trains = want
	problems = m.checkTargets(want.LoRA.Targets.Names(), adapted)
	if adapted && have.LoRA != want.LoRA {
		problems = append(problems, fmt.Errorf("the %s in %s is an adapter of rank %d and scale %g of %s, but [lora] "+
			"describes one of rank %d and scale %g of %s: a run takes it further as it is. Set lora.rank=%d lora.alpha=%g "+
			"lora.rslora=false lora.targets=%q", who, have.Dir, have.LoRA.Rank, have.LoRA.Scale,
			strings.Join(have.LoRA.Targets.Names(), ", "), want.LoRA.Rank, want.LoRA.Scale,
			strings.Join(want.LoRA.Targets.Names(), ", "), have.LoRA.Rank, have.LoRA.Scale*float64(have.LoRA.Rank),
			have.LoRA.Targets.Names()))
	}
	return problems
}

// checkTargets sees that the model has what an adapter is to lie beside; one that is there already does.
func (m *Model) checkTargets(targets []string, there bool) (problems []error) {
	shape, mixture := checkpoint.Config{ModelConfig: m.Shape}, m.Shape.Shape.Experts > 0
	for _, target := range targets {
		if strings.HasPrefix(target, "experts.") && !mixture {
			problems = append(problems, fmt.Errorf("lora.targets: %s: a %s model has no experts: leave it out", target,
				m.Shape.Family))
		}
		if fused := shape.FusedModule(target); fused != "" && !there {
			instead := "leave it out"
			if mixture {
				instead = `expected lora.targets = ["attention", "experts"] or names of these`
			}
			problems = append(problems, fmt.Errorf("lora.targets: %s of a %s model lies in its %s, beside which "+
				"there is no adapter of it alone: %s", target, m.Shape.Family, fused, instead))
		}
	}
	return problems
}
