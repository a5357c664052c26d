// Package static asks questions of fixed data sets in the forms of MetaMathQA, GSM8K and MMLU, and lets a policy
// try again: the k-th attempt, counted from 0, earns 1/2^k if it is right.
package static

import (
	"context"
	"math"
	"strings"

	"gyre/envs"
)

// options are the settings of the environment.
type options struct {
	Form     string `option:"dataset_name" oneof:"metamathqa,gsm8k,mmlu" doc:"form of the rows and of grading"`
	Problems string `option:"problems" doc:"file of rows, drawn by the seed; none: a few of our own"`
	Attempts int    `option:"attempts" range:"[1,)" doc:"answers after which the episode ends unsolved; max_actions and max_turns bound them too"`
}

func init() {
	form := func(name string) func(*options) { return func(o *options) { o.Form = name } }
	tag := envs.Native("static", options{Attempts: 5}, newGame)
	envs.Register(
		tag("MetamathQA", "questions in MetaMathQA's form, graded by text", 1, 100, form("metamathqa")),
		tag("GSM8K", "questions in GSM8K's form, graded by number", 1, 100, form("gsm8k")),
		tag("MMLU", "questions in MMLU's form, graded by choice", 1, 100, form("mmlu")),
	)
}

// game is the environment; it implements envs.Env and envs.Solver.
type game struct {
	envs.Episode
	options   *options
	form      form
	questions []question
	question  question
	attempt   int
	outcome   string // of the latest answer
}

func newGame(o *options) (*game, error) {
	f := forms[o.Form]
	questions, err := f.questions(o.Form, o.Problems)
	return &game{options: o, form: f, questions: questions}, err
}

func (g *game) Reset(_ context.Context, seed int64, _ int) (envs.Start, error) {
	g.question = g.questions[envs.Rand("static", seed).IntN(len(g.questions))]
	g.attempt, g.outcome = 0, ""
	return g.Begin("Answer the question. "+g.form.asks, nil), nil
}

func (g *game) Observe() envs.Observation {
	if g.outcome != "" {
		return envs.Observation{Text: g.outcome}
	}
	return envs.Observation{Text: g.question.text}
}

// Step takes an answer. A wrong one may be followed by another, which earns half as much; an empty one is not an
// answer.
func (g *game) Step(_ context.Context, action string) (envs.Result, error) {
	if _, err := g.Take(action); err != nil || strings.TrimSpace(action) == "" {
		return envs.Result{}, err
	}
	r := envs.Result{Valid: true, Effective: true, Success: g.form.right(action, g.question.gold),
		Components: []envs.Component{{Name: "correctness"}}}
	if g.outcome = "Incorrect. Think again."; r.Success {
		g.outcome = "Correct!"
		r.Reward = math.Ldexp(1, -g.attempt)
		r.Components[0].Value = 1
	}
	g.attempt++
	r.Info = map[string]float64{"attempts": float64(g.attempt)}
	r.Done = r.Success || g.attempt >= g.options.Attempts
	return g.End(r)
}

// Solve gives the answer.
func (g *game) Solve() ([]string, bool) { return []string{g.question.gold}, g.Running() }
