package sft

import (
	"testing"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/session"
)

// A run that validates nothing needs no sampler: experts play its demonstrations.
func TestOnlyValidationNeedsASampler(t *testing.T) {
	for every, want := range map[int]bool{0: false, 2: true} {
		c := &config.Config{}
		c.Run.ValidateEvery, c.Validation.Envs = every, []config.Env{{}}
		parts := (&Trainer{Training: session.NewTraining(c, session.Options{}, 1)}).parts()
		if parts.Play != want || !parts.Show {
			t.Errorf("validating every %d epochs: %+v", every, parts)
		}
	}
}
