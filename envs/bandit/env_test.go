package bandit

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"gyre/envs"
	"gyre/envs/envtest"
)

func play(t *testing.T, tag string, options map[string]any, seed int64, member int) *machine {
	t.Helper()
	env := envtest.Open(t, tag, options)
	if _, err := env.Reset(t.Context(), seed, member); err != nil {
		t.Fatal(err)
	}
	return env.(*machine)
}

// indexOfBest is the place of the best arm in the order shown.
func indexOfBest(m *machine) int { return slices.IndexFunc(m.arms, func(a arm) bool { return a.best }) }

// The risky arm pays 1 a quarter of the time, differently for the members of a group; the safe one always 0.1.
func TestPayments(t *testing.T) {
	const n = 4000
	wins := 0.0
	for member := range n {
		m := play(t, "bandit", nil, 5, member)
		r, err := m.Step(t.Context(), strings.ToLower(m.arms[indexOfBest(m)].name))
		if err != nil || !r.Done || !r.Success || !r.Valid || r.Info["risky_arm"] != 1 || r.Reward != 0 &&
			r.Reward != 1 {
			t.Fatalf("risky arm: %+v, %v", r, err)
		}
		wins += r.Reward
	}
	if rate := wins / n; math.Abs(rate-0.25) > 0.03 {
		t.Errorf("the risky arm wins %.3f of the time, want 0.25", rate)
	}
	m := play(t, "bandit", nil, 5, 0)
	safe := m.arms[1-indexOfBest(m)].name
	r, err := m.Step(t.Context(), safe)
	if err != nil || r.Reward != 0.1 || !r.Done || r.Success || r.Info["risky_arm"] != 0 {
		t.Errorf("safe arm: %+v, %v", r, err)
	}
	if m.Observe().Text != safe+": 0.1 points" {
		t.Errorf("after the pull: %q", m.Observe().Text)
	}
	if _, err := m.Step(t.Context(), safe); !errors.Is(err, envs.ErrNotRunning) {
		t.Errorf("a second pull: %v, want ErrNotRunning", err)
	}
}

func TestGroupSharesThePromptAndSeedsVaryIt(t *testing.T) {
	prompts, first := map[string]bool{}, 0
	const n = 1000
	for seed := range int64(n) {
		a, b := play(t, "Bandit", nil, seed, 0), play(t, "Bandit", nil, seed, 7)
		if a.Observe().Text != b.Observe().Text || len(a.arms) != 2 || a.arms[0].name != b.arms[0].name {
			t.Fatalf("seed %d: members see %q and %q", seed, a.Observe().Text, b.Observe().Text)
		}
		prompts[a.Observe().Text] = true
		first += indexOfBest(a)
	}
	if len(prompts) != 24 { // twelve pairs in two orders
		t.Errorf("%d prompts, want 24", len(prompts))
	}
	if math.Abs(float64(first)/n-0.5) > 0.06 {
		t.Errorf("the risky arm comes second in %d of %d", first, n)
	}
}

func TestSplitsDoNotOverlap(t *testing.T) {
	for _, pair := range pairs["test"] {
		if slices.Contains(pairs["train"], pair) {
			t.Errorf("%s is in both splits", pair)
		}
	}
	m := play(t, "BanditTest", nil, 1, 0)
	if !slices.Contains(pairs["test"], m.arms[1-indexOfBest(m)].name+"/"+m.arms[indexOfBest(m)].name) {
		t.Errorf("BanditTest shows %s", m.Observe().Text)
	}
}

func TestOptions(t *testing.T) {
	m := play(t, "bandit", map[string]any{"arms": []any{"Ice / Fire"}, "lo_arm_score": 0.5, "hi_hiscore": 3, "prob": 1},
		1, 0)
	if r, err := m.Step(t.Context(), "fire"); err != nil || r.Reward != 3 {
		t.Errorf("fire: %+v, %v, want 3", r, err)
	}
	spec, _ := envs.Lookup("bandit")
	for want, options := range map[string]map[string]any{
		"one of train, test":    {"split": "dev"},
		"option prob: expected": {"prob": 2},
		"two different names":   {"arms": []string{"Ice"}},
		"at least one pair":     {"arms": []string{}},
		"did you mean prob?":    {"prop": 1},
		"are the same setting":  {"prob": 0.1, "hi_arm_hiscore_prob": 0.2},
	} {
		if _, err := spec.Make(options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want one with %q", options, err, want)
		}
	}
}

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
	if _, err := m.Reset(b.Context(), 1, 0); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		m.left = 2
		if _, err := m.Step(b.Context(), m.arms[1].name); err != nil {
			b.Fatal(err)
		}
		m.Observe()
	}
}
