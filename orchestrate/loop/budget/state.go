package budget

import (
	"fmt"
	"slices"

	"gyre/internal/statistics"
)

// State is what a run knows of its tasks, and what it has decided. It belongs to the goroutine that trains, and every
// rank has the same.
type State struct {
	Sources     []Source        `json:"sources"`         // in the order of [[envs]]
	Tasks       map[string]Task `json:"tasks,omitempty"` // by source and name
	Planned     []Planned       `json:"planned,omitempty"`
	Calibration Calibration     `json:"calibration"`
}

// Task is what was seen of one task, discounted.
type Task struct {
	Successes float64 `json:"successes"`
	Failures  float64 `json:"failures"`
}

// Source is what was seen of the groups of one source, discounted.
type Source struct {
	Won  Moments `json:"won"`  // rewards of episodes that were a success
	Lost Moments `json:"lost"` // of the others
	// Within are the variances of success within groups, unbiased: what is left of p(1 − p) when tasks differ.
	Within Moments `json:"within"`
	// Noise is the sum over groups of the variance of rewards times the mean energy, Spread that of the variance.
	Noise  float64 `json:"noise"`
	Spread float64 `json:"spread"`
	Energy Moments `json:"energy"` // mean energies of groups
}

// Moments are discounted sums.
type Moments struct {
	Count  float64 `json:"count"`
	Sum    float64 `json:"sum"`
	Square float64 `json:"square"`
}

func (m *Moments) add(v float64) { m.Count, m.Sum, m.Square = m.Count+1, m.Sum+v, m.Square+v*v }

func (m *Moments) fade(memory float64) {
	m.Count, m.Sum, m.Square = m.Count*memory, m.Sum*memory, m.Square*memory
}

func (m Moments) mean() float64 { return m.Sum / m.Count }

func (m Moments) variance() float64 {
	if m.Count == 0 {
		return 0
	}
	return max(m.Square/m.Count-m.mean()*m.mean(), 0)
}

// Place is a group of a batch before it is played.
type Place struct {
	Source int
	Size   int    // that the source plans
	Task   string // "" where tasks do not come back
}

// Group is one that was played.
type Group struct {
	Place
	Won, Lost []float64 // rewards of the episodes that were a success, and of the others
	Energy    float64   // mean of the squared norms of its episodes' score functions
}

func (p Place) key() string { return fmt.Sprintf("%d/%s", p.Source, p.Task) }

// spread is the unbiased variance of the group's rewards.
func (g Group) spread() float64 {
	d := statistics.Deviation(slices.Concat(g.Won, g.Lost))
	return d * d
}

// size is how many episodes the group has.
func (g Group) size() int { return len(g.Won) + len(g.Lost) }

// Learn takes in a batch that was played. What is older weighs less by the factor memory.
func (s *State) Learn(groups []Group, memory float64) {
	for i := range s.Sources {
		own := &s.Sources[i]
		own.Won.fade(memory)
		own.Lost.fade(memory)
		own.Within.fade(memory)
		own.Energy.fade(memory)
		own.Noise, own.Spread = own.Noise*memory, own.Spread*memory
	}
	for _, g := range groups {
		for len(s.Sources) <= g.Source {
			s.Sources = append(s.Sources, Source{})
		}
		s.learn(g, memory)
	}
}

func (s *State) learn(g Group, memory float64) {
	own, n := &s.Sources[g.Source], g.size()
	for _, r := range g.Won {
		own.Won.add(r)
	}
	for _, r := range g.Lost {
		own.Lost.add(r)
	}
	if n > 1 {
		spread := g.spread()
		own.Within.add(float64(len(g.Won)*len(g.Lost)) / float64(n*(n-1)))
		own.Energy.add(g.Energy)
		own.Noise, own.Spread = own.Noise+spread*g.Energy, own.Spread+spread
	}
	if g.Task == "" {
		return
	}
	if s.Tasks == nil {
		s.Tasks = map[string]Task{}
	}
	t := s.Tasks[g.key()]
	s.Tasks[g.key()] = Task{memory*t.Successes + float64(len(g.Won)), memory*t.Failures + float64(len(g.Lost))}
}
