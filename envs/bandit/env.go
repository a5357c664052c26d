package bandit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"gyre/envs"
)

// arm is one arm of a machine.
type arm struct {
	name string
	best bool // pulling it is a success
	pay  func(luck *rand.Rand) float64
}

// machine is the environment; it implements envs.Env, envs.MemberSetter and envs.Solver.
type machine struct {
	rules string
	// deal makes the arms of an episode, in the order shown.
	deal  func(rng *rand.Rand) []arm
	pulls int    // per episode
	info  string // metric: 1 when the best arm was pulled

	member  int
	arms    []arm
	luck    *rand.Rand
	counts  []int // pulls of each arm
	sums    []float64
	last    string // what the latest pull paid, "" before the first
	left    int    // pulls
	running bool
}

// SetMember makes the reward draws of the following Resets those of a member of the group.
func (m *machine) SetMember(index int) { m.member = index }

func (m *machine) Reset(_ context.Context, seed int64) error {
	m.arms = m.deal(envs.Rand("bandit/arms", seed))
	m.luck = envs.Rand("bandit/reward", seed, int64(m.member))
	m.counts, m.sums = make([]int, len(m.arms)), make([]float64, len(m.arms))
	m.last, m.left, m.running = "", m.pulls, true
	return nil
}

// Observe shows the arms before the first pull and what it paid after the last; in between also what each arm has paid.
func (m *machine) Observe() envs.Observation {
	if m.left == 0 {
		return envs.Observation{Text: m.last}
	}
	var text strings.Builder
	text.WriteString("Arms: " + strings.Join(m.Actions(), ", "))
	if m.last != "" {
		text.WriteString("\n" + m.last)
	}
	for i, a := range m.arms {
		if n := m.counts[i]; n > 0 {
			fmt.Fprintf(&text, "\n%s: mean %s of %d", a.name, number(m.sums[i]/float64(n)), n)
		}
	}
	return envs.Observation{Text: text.String()}
}

func (m *machine) Step(_ context.Context, action string) (envs.Result, error) {
	if !m.running {
		return envs.Result{}, envs.ErrNotRunning
	}
	i := slices.IndexFunc(m.arms, func(a arm) bool { return strings.EqualFold(a.name, action) })
	if i < 0 {
		return envs.Result{}, nil
	}
	reward := m.arms[i].pay(m.luck)
	m.counts[i]++
	m.sums[i] += reward
	m.left--
	m.last = m.arms[i].name + ": " + number(reward) + " points"
	m.running = m.left > 0
	r := envs.Result{Reward: reward, Done: !m.running, Success: m.arms[i].best, Valid: true, Effective: true}
	r.Info = map[string]float64{m.info: 0}
	if r.Success {
		r.Info[m.info] = 1
	}
	return r, nil
}

// number prints what a pull paid: three digits tell enough.
func number(points float64) string { return strconv.FormatFloat(points, 'g', 3, 64) }

func (m *machine) Actions() []string {
	names := make([]string, len(m.arms))
	for i, a := range m.arms {
		names[i] = a.name
	}
	return names
}

func (m *machine) Instruction() string { return m.rules }

// Solve pulls the best arm to the end.
func (m *machine) Solve() ([]string, bool) {
	best := slices.IndexFunc(m.arms, func(a arm) bool { return a.best })
	if best < 0 {
		return nil, false
	}
	return slices.Repeat([]string{m.arms[best].name}, m.left), true
}

func (m *machine) Close() error {
	m.running = false
	return nil
}
