package bandit

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"gyre/envs"
)

// machine is the environment; it implements envs.Env and envs.MemberSetter.
type machine struct {
	options *options
	pairs   [][2]string
	member  int
	names   []string // the two arms in the order shown
	risky   int      // index in names
	luck    *rand.Rand
	pulled  string // what the pull paid, once it is done
	running bool
}

func newMachine(o *options) (*machine, error) {
	pairs, err := o.arms()
	if err != nil {
		return nil, err
	}
	return &machine{options: o, pairs: pairs}, nil
}

// SetMember makes the reward draw of the following Resets that of a member of the group.
func (m *machine) SetMember(index int) { m.member = index }

func (m *machine) Reset(_ context.Context, seed int64) error {
	rng := envs.Rand("bandit/arms", seed)
	pair := m.pairs[rng.IntN(len(m.pairs))]
	m.names, m.risky = []string{pair[0], pair[1]}, 1
	if rng.IntN(2) == 1 {
		slices.Reverse(m.names)
		m.risky = 0
	}
	m.luck = envs.Rand("bandit/reward", seed, int64(m.member))
	m.pulled, m.running = "", true
	return nil
}

func (m *machine) Observe() envs.Observation {
	if m.pulled != "" {
		return envs.Observation{Text: m.pulled}
	}
	return envs.Observation{Text: "Arms: " + strings.Join(m.names, ", ")}
}

func (m *machine) Step(_ context.Context, action string) (envs.Result, error) {
	if !m.running {
		return envs.Result{}, envs.ErrNotRunning
	}
	arm := slices.IndexFunc(m.names, func(name string) bool { return strings.EqualFold(name, action) })
	if arm < 0 {
		return envs.Result{}, nil
	}
	risky := arm == m.risky
	reward := m.options.Safe
	if risky {
		reward = m.options.RiskyLow
		if m.luck.Float64() < m.options.Prob {
			reward = m.options.RiskyWin
		}
	}
	m.pulled = m.names[arm] + ": " + strconv.FormatFloat(reward, 'g', -1, 64) + " points"
	m.running = false
	r := envs.Result{Reward: reward, Done: true, Success: risky, Valid: true, Effective: true}
	r.Info = map[string]float64{"risky_arm": 0}
	if risky {
		r.Info["risky_arm"] = 1
	}
	return r, nil
}

func (m *machine) Actions() []string { return slices.Clone(m.names) }

func (m *machine) Instruction() string {
	return "You stand before a slot machine with two arms and pull one of them once. Each arm is named after a " +
		"profession and pays in the manner of that profession: what its name stands for is your only hint. Choose the arm " +
		"that you expect to pay more on average and answer with its name."
}

func (m *machine) Close() error {
	m.running = false
	return nil
}
