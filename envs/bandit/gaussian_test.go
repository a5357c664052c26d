package bandit

import (
	"errors"
	"math"
	"strings"
	"testing"

	"gyre/envs"
)

// moments are the mean and the standard deviation of what an arm pays to many members of one group.
func moments(t *testing.T, tag string, pick func(*machine) string) (mean, std float64) {
	t.Helper()
	const n = 6000
	m := play(t, tag, nil, 3, 0)
	var sum, squares float64
	for member := range n {
		if _, err := m.Reset(t.Context(), 3, member); err != nil {
			t.Fatal(err)
		}
		r, err := m.Step(t.Context(), pick(m))
		if err != nil || !r.Valid {
			t.Fatalf("%+v, %v", r, err)
		}
		sum += r.Reward
		squares += r.Reward * r.Reward
	}
	mean = sum / n
	return mean, math.Sqrt(squares/n - mean*mean)
}

// The first generation's arms: N(0.2, 0.1²) against 0.75·N(0.1, 0.1²) + 0.25·N(1, 0.1²), whose variance is 0.01 +
// 0.1875·0.9².
func TestTwoArmedPayments(t *testing.T) {
	mean, std := moments(t, "two_armed_bandit", func(*machine) string { return "Phoenix" })
	if math.Abs(mean-0.2) > 0.006 || math.Abs(std-0.1) > 0.005 {
		t.Errorf("phoenix pays %.4f ± %.4f, want 0.2 ± 0.1", mean, std)
	}
	mean, std = moments(t, "two_armed_bandit", func(*machine) string { return "dragon" })
	if want := math.Sqrt(0.01 + 0.1875*0.81); math.Abs(mean-0.325) > 0.02 || math.Abs(std-want) > 0.015 {
		t.Errorf("dragon pays %.4f ± %.4f, want 0.325 ± %.4f", mean, std, want)
	}
	m := play(t, "TwoArmedBandit", nil, 1, 0)
	if r, err := m.Step(t.Context(), "phoenix"); err != nil || !r.Done || r.Success || r.Info["high_arm"] != 0 {
		t.Errorf("phoenix: %+v, %v: only the arm with the higher mean is a success", r, err)
	}
}

// The means are dealt from the seed and differ from the members' luck; the expert knows the best arm.
func TestGaussianArms(t *testing.T) {
	options := map[string]any{"n_arms": 5, "pulls": 4, "std": 0.0}
	m, other := play(t, "GaussianBandit", options, 8, 0), play(t, "GaussianBandit", options, 8, 9)
	if got, want := m.Observe().Text, "Arms: 1, 2, 3, 4, 5"; got != want {
		t.Errorf("at first %q, want %q", got, want)
	}
	plan, ok := m.Solve()
	if !ok || len(plan) != 4 {
		t.Fatalf("the expert's plan: %v, %v", plan, ok)
	}
	best := math.Inf(-1)
	for i, name := range []string{"1", "2", "3", plan[0]} {
		r, err := m.Step(t.Context(), name)
		s, _ := other.Step(t.Context(), name)
		if err != nil || r.Done != (i == 3) || r.Reward != s.Reward || r.Success != (name == plan[0]) {
			t.Fatalf("pull %d: %+v and %+v, %v", i, r, s, err)
		}
		if i == 0 && !strings.Contains(m.Observe().Text, "\n1: mean "+string(appendNumber(nil, r.Reward))+" of 1") {
			t.Errorf("the first pull is not told: %q", m.Observe().Text)
		}
		best = max(best, r.Reward)
		if i == 3 && r.Reward != best {
			t.Errorf("the expert's arm pays %g, another %g", r.Reward, best)
		}
	}
	if _, err := m.Step(t.Context(), "1"); !errors.Is(err, envs.ErrNotRunning) {
		t.Errorf("a pull too many: %v", err)
	}
	var sum, squares float64
	const n = 4000
	for seed := range int64(n) {
		if _, err := m.Reset(t.Context(), seed, 0); err != nil {
			t.Fatal(err)
		}
		r, _ := m.Step(t.Context(), "1")
		sum += r.Reward
		squares += r.Reward * r.Reward
	}
	if mean, std := sum/n, math.Sqrt(squares/n); math.Abs(mean) > 0.06 || math.Abs(std-1) > 0.05 {
		t.Errorf("means are dealt with mean %.3f and deviation %.3f, want 0 and 1", mean, std)
	}
}

func TestWrongGaussianOptions(t *testing.T) {
	for tag, cases := range map[string]map[string]map[string]any{
		"TwoArmedBandit": {
			"two different names": {"high_risk_name": "Phoenix"}, "option prob": {"prob": -1},
			"option std": {"std": -0.5},
		},
		"GaussianBandit": {"option n_arms": {"n_arms": 1}, "option pulls": {"pulls": 0},
			"option mean_std": {"mean_std": 0}},
	} {
		spec, err := envs.Lookup(tag)
		if err != nil {
			t.Fatal(err)
		}
		for want, options := range cases {
			if _, err := spec.Make(options); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %v: error %v, want one with %q", tag, options, err, want)
			}
		}
	}
}
