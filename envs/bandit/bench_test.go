package bandit

import (
	"testing"

	"gyre/envs"
)

func BenchmarkStep(b *testing.B) {
	spec, err := envs.Lookup("Bandit")
	if err != nil {
		b.Fatal(err)
	}
	env, err := spec.Make(nil)
	if err != nil {
		b.Fatal(err)
	}
	m := env.(*machine)
	if err := m.Reset(b.Context(), 1); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		m.left, m.running = 1, true
		if _, err := m.Step(b.Context(), m.arms[1].name); err != nil {
			b.Fatal(err)
		}
		m.Observe()
	}
}
