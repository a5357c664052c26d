// Package laboratory measures advantage estimators where the true policy gradient is known: in games so small that all
// their trajectories can be listed, with a policy that is a table of logits by observation.
//
// The expectation and the variance of an estimator's gradient are sums over all groups of trajectories where these are
// few enough, and are measured on random groups elsewhere, with an interval. Advantages come from package advantage,
// weights of tokens from package aggregation and corrections for other policies' tokens from package importance: the
// functions that training calls. docs/estimators.md is made of what comes out.
package laboratory

import (
	"math"
	"slices"
)

// Game is a Markov game that ends after Horizon decisions at the latest.
type Game struct {
	Name    string      `json:"name"`
	About   string      `json:"about"`
	States  []State     `json:"states"`
	Start   []float64   `json:"start"` // probability of each state
	Horizon int         `json:"horizon"`
	Logits  [][]float64 `json:"logits"` // of the policy, by observation and action
}

// State is what the policy decides in. States with the same observation look alike to it.
type State struct {
	Observation int         `json:"observation"`
	Actions     [][]Outcome `json:"actions"` // what may become of each action
}

// Outcome follows an action with the probability P.
type Outcome struct {
	P      float64 `json:"p"`
	Reward float64 `json:"reward"`
	Next   int     `json:"next"` // -1: the episode ends
	Turn   bool    `json:"turn"` // the policy's turn ends: something is observed before the next decision
}

// decision is one sampled token.
type decision struct {
	state, action int
	reward        float64
	turn          bool // the last one of its turn
}

// path is a trajectory.
type path struct {
	decisions []decision
	luck      float64 // the probability of its outcomes, given its start and its actions
}

func (p path) start() int { return p.decisions[0].state }

// reward is the sum of the path's rewards.
func (p path) reward() (sum float64) {
	for _, d := range p.decisions {
		sum += d.reward
	}
	return sum
}

// paths lists all trajectories.
func (g Game) paths() (all []path) {
	var walk func(state int, so path)
	walk = func(state int, so path) {
		for action, outcomes := range g.States[state].Actions {
			for _, o := range outcomes {
				over := o.Next < 0 || len(so.decisions)+1 == g.Horizon
				next := path{append(slices.Clone(so.decisions), decision{state, action, o.Reward, o.Turn || over}),
					so.luck * o.P}
				if over {
					all = append(all, next)
				} else {
					walk(o.Next, next)
				}
			}
		}
	}
	for state, p := range g.Start {
		if p > 0 {
			walk(state, path{luck: 1})
		}
	}
	return all
}

// policy is the probability of each action at each observation.
func policy(logits [][]float64) [][]float64 {
	out := make([][]float64, len(logits))
	for i, row := range logits {
		sum, top := 0.0, slices.Max(row)
		for _, v := range row {
			out[i] = append(out[i], math.Exp(v-top))
			sum += math.Exp(v - top)
		}
		for a := range out[i] {
			out[i][a] /= sum
		}
	}
	return out
}

// probability of a path under a policy, given where it starts.
func (g Game) probability(p path, policy [][]float64) float64 {
	product := p.luck
	for _, d := range p.decisions {
		product *= policy[g.States[d.state].Observation][d.action]
	}
	return product
}

// score adds the gradient of a decision's log-probability, times a factor, to a vector over all logits.
func (g Game) score(into []float64, policy [][]float64, d decision, factor float64) {
	observation, at := g.States[d.state].Observation, 0
	for _, row := range policy[:observation] {
		at += len(row)
	}
	for a, p := range policy[observation] {
		into[at+a] -= factor * p
	}
	into[at+d.action] += factor
}

// expectedGradient is the gradient of the expectation of what earned says of a path, which does not depend on the
// policy: Σ P(τ) f(τ) ∇log P(τ) over all paths τ.
func (g Game) expectedGradient(logits [][]float64, earned func(path) float64) []float64 {
	policy := policy(logits)
	out := make([]float64, len(slices.Concat(logits...)))
	for _, p := range g.paths() {
		factor := g.Start[p.start()] * g.probability(p, policy) * earned(p)
		for _, d := range p.decisions {
			g.score(out, policy, d, factor)
		}
	}
	return out
}

// Gradient is the exact policy gradient: of the expected sum of rewards, by the logits.
func (g Game) Gradient(logits [][]float64) []float64 { return g.expectedGradient(logits, path.reward) }

// values are the expected rewards to come, discounted by gamma per token, by the number of decisions before and state.
func (g Game) values(policy [][]float64, gamma float64) [][]float64 {
	values := make([][]float64, g.Horizon+1)
	for t := g.Horizon; t >= 0; t-- {
		values[t] = make([]float64, len(g.States))
		for s, state := range g.States {
			if t == g.Horizon {
				continue
			}
			for action, outcomes := range state.Actions {
				for _, o := range outcomes {
					worth := o.Reward
					if o.Next >= 0 {
						worth += gamma * values[t+1][o.Next]
					}
					values[t][s] += policy[state.Observation][action] * o.P * worth
				}
			}
		}
	}
	return values
}

// behind are the logits of the policy so many updates ago: each went a step of length 0.3 along the gradient.
func (g Game) behind(updates int) [][]float64 {
	const step = 0.3
	logits := make([][]float64, len(g.Logits))
	for i, row := range g.Logits {
		logits[i] = slices.Clone(row)
	}
	for range updates {
		gradient := g.Gradient(logits)
		length, at := math.Sqrt(dot(gradient, gradient)), 0
		for _, row := range logits {
			for a := range row {
				row[a] -= step * gradient[at] / length
				at++
			}
		}
	}
	return logits
}

func dot(x, y []float64) (sum float64) {
	for i := range x {
		sum += x[i] * y[i]
	}
	return sum
}
