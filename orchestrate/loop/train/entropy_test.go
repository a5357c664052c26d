package train

import "testing"

// The coefficient rises below the target, falls above it, stays within its bounds, and counts only below.
func TestEntropyControl(t *testing.T) {
	e := EntropyControl{Coef: 0.003}
	if got := e.Bonus(0.2); got != 0.003 {
		t.Errorf("before anything is measured: %v", got)
	}
	for i, step := range []struct{ entropy, coef, bonus float64 }{
		{0.1, 0.004, 0.004}, {0.15, 0.005, 0.005}, {0.1, 0.005, 0.005}, {0.3, 0.004, 0}, {0.2, 0.004, 0.004}, {0.5, 0.003, 0},
		{0.5, 0.002, 0}, {0.5, 0.001, 0}, {0.5, 0, 0}, {0.5, 0, 0}, {0.1, 0.001, 0.001},
	} {
		e.Measured(step.entropy, 0.2, 0.001, 0.005)
		if d := e.Coef - step.coef; d > 1e-12 || d < -1e-12 || (e.Bonus(0.2) == 0) != (step.bonus == 0) {
			t.Errorf("measurement %d: coefficient %v, bonus %v; want %v, %v", i, e.Coef, e.Bonus(0.2), step.coef, step.bonus)
		}
	}
}
