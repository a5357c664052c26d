package countdown

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"gyre/envs"
	"gyre/envs/arithmetic"
)

// game is the environment; it implements envs.Env and envs.Solver.
type game struct {
	options  *options
	problems []problem // of a file; nil = generated ones
	problem  problem
	outcome  string // of the answer, once there is one
	running  bool
}

func newGame(o *options) (*game, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	g := &game{options: o}
	if o.Problems != "" {
		var err error
		if g.problems, err = readProblems(o.Problems); err != nil {
			return nil, err
		}
	}
	return g, nil
}

func (g *game) Reset(_ context.Context, seed int64, _ int) (envs.Start, error) {
	if n := int64(len(g.problems)); n > 0 {
		g.problem = g.problems[(seed%n+n)%n]
	} else {
		p, err := g.options.generate(envs.Rand("countdown", seed))
		if err != nil {
			return envs.Start{}, err
		}
		g.problem = p
	}
	g.outcome, g.running = "", true
	return envs.Start{Instruction: g.instruction()}, nil
}

func (g *game) Observe() envs.Observation {
	if g.outcome != "" {
		return envs.Observation{Text: g.outcome}
	}
	var text strings.Builder
	text.WriteString("Target: " + strconv.Itoa(g.problem.target) + ", nums: [")
	for i, n := range g.problem.numbers {
		if i > 0 {
			text.WriteString(", ")
		}
		text.WriteString(strconv.Itoa(n))
	}
	text.WriteByte(']')
	return envs.Observation{Text: text.String()}
}

// Step takes the answer.
func (g *game) Step(_ context.Context, action string) (envs.Result, error) {
	if !g.running {
		return envs.Result{}, envs.ErrNotRunning
	}
	g.running = false
	formed := usesNumbers(action, g.problem.numbers, g.options.UseAll)
	r := envs.Result{Done: true, Valid: true}
	correct := false
	value, err := arithmetic.Grammar{}.Evaluate(action)
	switch {
	case !formed:
		g.outcome = "The answer does not use the numbers as it should."
	case err != nil:
		g.outcome = fmt.Sprintf("The answer is no arithmetic: %v.", err)
	default:
		correct = math.Abs(value-float64(g.problem.target)) < tolerance
		g.outcome = fmt.Sprintf("The answer makes %s.", strconv.FormatFloat(value, 'g', 6, 64))
	}
	switch {
	case correct:
		r.Reward, r.Success = g.options.Score, true
	case formed:
		r.Reward = g.options.FormatScore
	}
	r.Effective = r.Reward > 0
	r.Components = []envs.Component{{Name: "correctness", Value: indicator(correct)},
		{Name: "format", Value: indicator(formed)}}
	r.Info = map[string]float64{"right_numbers": indicator(formed)}
	return r, nil
}

func indicator(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (g *game) instruction() string {
	use := "every one of them exactly once"
	if !g.options.UseAll {
		use = "each of them at most once"
	}
	return "You play Countdown. Write an arithmetic expression whose value is the target: use the numbers of the " +
		"list, " + use +
		", together with +, -, *, / and parentheses, and no other number. For the target 14 and the numbers [3, 5, " +
		"6] that is 5 + 3 + 6. Answer with the expression alone, without an equals sign."
}

// Solve searches for an expression.
func (g *game) Solve() ([]string, bool) {
	expression, ok := g.problem.solve(g.options.UseAll)
	if !ok {
		return nil, false
	}
	return []string{expression}, true
}

func (g *game) Close() error {
	g.running = false
	return nil
}
