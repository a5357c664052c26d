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
	Attempts int    `option:"attempts" range:"[1,)" doc:"answers after which the episode ends unsolved"`
}

func init() {
	spec := func(tag, form, doc string) envs.Spec {
		return envs.Spec{
			Tag: tag, Type: "static", Doc: doc, MaxActions: 1, MaxReplyWords: 100,
			NewOptions: func() any { return &options{Form: form, Attempts: 5} },
			New:        func(o any) (envs.Env, error) { return newGame(o.(*options)) },
		}
	}
	envs.Register(
		spec("MetamathQA", "metamathqa", "questions in MetaMathQA's form, graded by text"),
		spec("GSM8K", "gsm8k", "questions in GSM8K's form, graded by number"),
		spec("MMLU", "mmlu", "questions in MMLU's form, graded by choice"),
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
