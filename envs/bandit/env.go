// Package bandit holds slot machines: a few arms that pay at random, and a policy that has to find the best one.
//
// Bandit is RAGEN's choice between two arms named after professions, one safe and one risky. The safe arm always
// pays a little, the risky one pays more on average but seldom: a policy has to guess from the names which is
// which. TwoArmedBandit and GaussianBandit are the machines of RAGEN's first generation: a choice between two names
// that pay about a normal distribution each, and several pulls of arms whose normal distributions are dealt anew
// for every seed.
//
// The arms and their order depend on the seed alone, so that a group shares one prompt; what a pull pays depends on the
// member too.
package bandit

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"

	"gyre/envs"
)

// arm is one arm of a machine.
type arm struct {
	name string
	best bool // pulling it is a success
	pay  func(luck *rand.Rand) float64
}

// machine is the environment; it implements envs.Env and envs.Solver.
type machine struct {
	envs.Episode
	rules string
	// deal makes the arms of an episode, in the order shown.
	deal  func(rng *rand.Rand) []arm
	pulls int    // per episode
	info  string // metric: 1 when the best arm was pulled
	infos [2]map[string]float64

	arms   []arm
	luck   *rand.Rand
	counts []int // pulls of each arm
	sums   []float64
	last   int     // the arm pulled last, -1 before the first
	paid   float64 // what it paid
	left   int     // pulls
}

func (m *machine) Reset(_ context.Context, seed int64, member int) (envs.Start, error) {
	m.arms = m.deal(envs.Rand("bandit/arms", seed))
	m.luck = envs.Rand("bandit/reward", seed, int64(member))
	m.counts, m.sums = make([]int, len(m.arms)), make([]float64, len(m.arms))
	m.last, m.left = -1, m.pulls
	if m.infos[0] == nil { // shared by all steps: nobody writes into them
		m.infos = [2]map[string]float64{{m.info: 0}, {m.info: 1}}
	}
	names := make([]string, len(m.arms))
	for i, a := range m.arms {
		names[i] = a.name
	}
	return m.Begin(m.rules, names), nil
}

// Observe shows the arms before the first pull and what it paid after the last; in between also what each arm has paid.
func (m *machine) Observe() envs.Observation {
	text := make([]byte, 0, 48)
	if m.left > 0 {
		text = append(text, "Arms: "...)
		for i, a := range m.arms {
			if i > 0 {
				text = append(text, ", "...)
			}
			text = append(text, a.name...)
		}
		if m.last >= 0 {
			text = append(text, '\n')
		}
	}
	if m.last >= 0 {
		text = append(text, m.arms[m.last].name...)
		text = append(text, ": "...)
		text = append(appendNumber(text, m.paid), " points"...)
	}
	if m.left == 0 {
		return envs.Observation{Text: string(text)}
	}
	for i, a := range m.arms {
		if n := m.counts[i]; n > 0 {
			text = append(text, '\n')
			text = append(text, a.name...)
			text = append(text, ": mean "...)
			text = appendNumber(text, m.sums[i]/float64(n))
			text = append(text, " of "...)
			text = strconv.AppendInt(text, int64(n), 10)
		}
	}
	return envs.Observation{Text: string(text)}
}

// appendNumber prints what a pull paid: three digits tell enough.
func appendNumber(text []byte, points float64) []byte {
	if whole := int64(points); float64(whole) == points && -1000 < whole && whole < 1000 {
		return strconv.AppendInt(text, whole, 10)
	}
	return strconv.AppendFloat(text, points, 'g', 3, 64)
}

func (m *machine) Step(_ context.Context, action string) (envs.Result, error) {
	i, err := m.Take(action)
	if i < 0 {
		return envs.Result{}, err
	}
	reward := m.arms[i].pay(m.luck)
	m.counts[i]++
	m.sums[i] += reward
	m.left--
	m.last, m.paid = i, reward
	r := envs.Result{Reward: reward, Done: m.left == 0, Success: m.arms[i].best, Valid: true, Effective: true,
		Info: m.infos[0]}
	if r.Success {
		r.Info = m.infos[1]
	}
	return m.End(r)
}

// Solve pulls the best arm to the end.
func (m *machine) Solve() ([]string, bool) {
	best := slices.IndexFunc(m.arms, func(a arm) bool { return a.best })
	if best < 0 {
		return nil, false
	}
	return slices.Repeat([]string{m.arms[best].name}, m.left), true
}
