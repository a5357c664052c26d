// Package countdown is the numbers game: combine the given numbers with + - * / and parentheses so that they make the
// target. One answer ends the episode.
package countdown

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"gyre/envs"
	"gyre/envs/arithmetic"
)

// options are the settings of the game.
type options struct {
	Numbers     [2]int  `option:"numbers" range:"[2,6]" doc:"fewest and most numbers of a generated problem"`
	MaxNumber   int     `option:"max_number" range:"[1,1000000]" doc:"largest number of a generated problem; they start at 1"`
	Target      [2]int  `option:"target" doc:"smallest and largest target of a generated problem"`
	Operations  string  `option:"operations" doc:"operations that generated targets are made with, out of +-*/"`
	Problems    string  `option:"problems,train_path" doc:"play the problems of this file, chosen by the seed: rows of {\"target\": 24, \"nums\": [4, 6]}, or reasoning-gym's countdown"`
	UseAll      bool    `option:"use_all" doc:"every number must be used; false: each at most once"`
	Score       float64 `option:"score" doc:"reward of a correct answer"`
	FormatScore float64 `option:"format_score" doc:"reward of a wrong answer that uses the right numbers"`
}

func init() {
	tag := envs.Native("countdown", options{Numbers: [2]int{3, 4}, MaxNumber: 99, Target: [2]int{10, 99},
		Operations: "+-", UseAll: true, Score: 1, FormatScore: 0.1}, newGame)
	envs.Register(tag("Countdown", "make a target out of three or four numbers, one answer", 1, 100, nil))
}

// game is the environment; it implements envs.Env and envs.Solver.
type game struct {
	envs.Episode
	options  *options
	problems []problem // of a file; nil = generated ones
	problem  problem
	outcome  string // of the answer, once there is one
}

func newGame(o *options) (*game, error) {
	var problems []error
	wrong := func(is bool, format string, args ...any) {
		if is {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	wrong(o.Numbers[1] < o.Numbers[0], "option numbers: expected the smaller count first, got [%d, %d]", o.Numbers[0],
		o.Numbers[1])
	wrong(o.Target[1] < o.Target[0], "option target: expected the smaller bound first, got [%d, %d]", o.Target[0],
		o.Target[1])
	wrong(o.Operations == "" || strings.Trim(o.Operations, "+-*/") != "",
		"option operations: expected some of + - * /, got %q", o.Operations)
	g := &game{options: o}
	if problems == nil && o.Problems != "" {
		var err error
		g.problems, err = readProblems(o.Problems)
		return g, err
	}
	return g, errors.Join(problems...)
}

func (g *game) Reset(_ context.Context, seed int64, _ int) (envs.Start, error) {
	if g.problems != nil {
		g.problem = envs.At(g.problems, seed)
	} else {
		p, err := g.options.generate(envs.Rand("countdown", seed))
		if err != nil {
			return envs.Start{}, err
		}
		g.problem = p
	}
	g.outcome = ""
	use := "every one of them exactly once"
	if !g.options.UseAll {
		use = "each of them at most once"
	}
	return g.Begin("You play Countdown. Write an arithmetic expression whose value is the target: use the numbers of "+
		"the list, "+use+", together with +, -, *, / and parentheses, and no other number. For the target 14 and the "+
		"numbers [3, 5, 6] that is 5 + 3 + 6. Answer with the expression alone, without an equals sign.", nil), nil
}

func (g *game) Observe() envs.Observation {
	if g.outcome != "" {
		return envs.Observation{Text: g.outcome}
	}
	list := strings.ReplaceAll(fmt.Sprint(g.problem.numbers), " ", ", ")
	return envs.Observation{Text: fmt.Sprintf("Target: %d, nums: %s", g.problem.target, list)}
}

// Step takes the answer.
func (g *game) Step(_ context.Context, action string) (envs.Result, error) {
	if _, err := g.Take(action); err != nil {
		return envs.Result{}, err
	}
	formed := usesNumbers(action, g.problem.numbers, g.options.UseAll)
	r := envs.Result{Done: true, Valid: true}
	value, err := arithmetic.Grammar{}.Evaluate(action)
	switch {
	case !formed:
		g.outcome = "The answer does not use the numbers as it should."
	case err != nil:
		g.outcome = fmt.Sprintf("The answer is no arithmetic: %v.", err)
	default:
		r.Success = math.Abs(value-float64(g.problem.target)) < tolerance
		g.outcome = fmt.Sprintf("The answer makes %s.", strconv.FormatFloat(value, 'g', 6, 64))
	}
	switch {
	case r.Success:
		r.Reward = g.options.Score
	case formed:
		r.Reward = g.options.FormatScore
	}
	r.Effective = r.Reward > 0
	r.Components = []envs.Component{{Name: "correctness", Value: envs.Indicator(r.Success)},
		{Name: "format", Value: envs.Indicator(formed)}}
	r.Info = map[string]float64{"right_numbers": envs.Indicator(formed)}
	return g.End(r)
}

// Solve searches for an expression.
func (g *game) Solve() ([]string, bool) {
	expression, ok := g.problem.solve(g.options.UseAll)
	return []string{expression}, ok
}
