package gyre

import (
	"math/rand/v2"
	"slices"

	"gyre/orchestrate/model/checkpoint"
	"gyre/scripts/bench/work"
	"gyre/torch"
)

// adapted are adapters of one rank beside a frozen model, as runs with [lora] hold them.
type adapted struct {
	base     *torch.Model
	adapters []*torch.Model
}

// openAdapters makes what a task needs of adapters; they are random, B too, so that every product counts.
func (s *server) openAdapters(t work.Task) error {
	if s.adapted.base == nil {
		on := s.On
		on.Frozen = true
		base, err := checkpoint.LoadModel(s.Model, torch.HeadLM, on)
		if err != nil {
			return err
		}
		s.adapted.base = base
	}
	list := s.adapted.adapters
	if len(list) == t.Adapters && list[0].Config.LoRA.Rank == int32(t.Rank) {
		return nil
	}
	s.closeAdapters()
	targets := []string{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
	if s.adapted.base.Config.Shape.Experts > 0 {
		targets = append(targets[:4], "experts.gate_up_proj", "experts.down_proj")
	}
	lora := torch.LoRA{Rank: int32(t.Rank), Scale: 1, Targets: torch.TargetsOf(targets)}
	for i := range t.Adapters {
		m, err := torch.NewAdapter(s.adapted.base, lora, torch.HeadLM)
		if err != nil {
			return err
		}
		s.adapted.adapters = append(s.adapted.adapters, m)
		parameters, err := m.Parameters()
		if err != nil {
			return err
		}
		random := rand.New(rand.NewPCG(1, uint64(i)))
		for _, p := range parameters {
			values, err := p.Tensor.Float32s()
			if err != nil {
				return err
			}
			for j := range values {
				values[j] = float32(random.NormFloat64() * 0.01)
			}
			if err := p.Tensor.SetFloat32s(values); err != nil {
				return err
			}
		}
		torch.CloseParameters(parameters)
		if err := m.Touch(); err != nil {
			return err
		}
	}
	s.loaded = s.adapted.adapters[0]
	return nil
}

// closeAdapters closes the adapters, and what is of the first of them.
func (s *server) closeAdapters() {
	s.sampler.close()
	if s.optimizer != nil {
		s.optimizer.Close()
		s.gradients.Close()
	}
	if len(s.adapted.adapters) == 0 && s.loaded != nil {
		s.loaded.Close() // the whole model, which continued the fixed prompt
	}
	s.sampler, s.optimizer, s.gradients, s.loaded = nil, nil, nil, nil
	for _, m := range slices.Backward(s.adapted.adapters) {
		m.Close()
	}
	s.adapted.adapters = nil
}

// policy is what continues prompt n; nil: the model that the engine was made for.
func (s *server) policy(t work.Task, n int) *torch.Model {
	if t.Adapters == 0 {
		return nil
	}
	return s.adapted.adapters[n%t.Adapters]
}
