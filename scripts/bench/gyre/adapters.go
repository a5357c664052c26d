package gyre

import (
	"gyre/orchestrate/model/checkpoint"
	"gyre/scripts/bench/work"
	"gyre/torch"
)

// openAdapters makes what a task needs of adapters of one rank beside a frozen model, as runs with [lora] hold them.
// What other tasks needed is closed, the whole model that continued the fixed prompt too.
func (s *server) openAdapters(t work.Task) error {
	if len(s.adapters) == t.Adapters && s.adapters[0].Config.LoRA.Rank == int32(t.Rank) {
		return nil
	}
	s.close()
	on := s.On
	on.Frozen = true
	base, err := checkpoint.LoadModel(s.Model, torch.HeadLM, on)
	if err != nil {
		return err
	}
	s.holds(base)
	targets := []string{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
	if base.Config.Shape.Experts > 0 {
		targets = append(targets[:4], "experts.gate_up_proj", "experts.down_proj")
	}
	lora := torch.LoRA{Rank: int32(t.Rank), Scale: 1, Targets: torch.TargetsOf(targets)}
	for i := range t.Adapters {
		m, err := checkpoint.NewAdapter(base, lora, torch.HeadLM, checkpoint.Ranks{}, "", uint64(i))
		if err != nil {
			return err
		}
		s.holds(m)
		s.adapters = append(s.adapters, m)
	}
	s.loaded = s.adapters[0]
	return nil
}

// policy is what continues prompt n; nil: the model that the engine was made for.
func (s *server) policy(t work.Task, n int) *torch.Model {
	if t.Adapters == 0 {
		return nil
	}
	return s.adapters[n%t.Adapters]
}
