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
	options   *options
	form      form
	questions []question
	question  question
	attempt   int
	outcome   string // of the latest answer
	running   bool
}

func newGame(o *options) (*game, error) {
	f := forms[o.Form]
	questions, err := f.questions(o.Form, o.Problems)
	if err != nil {
		return nil, err
	}
	return &game{options: o, form: f, questions: questions}, nil
}

func (g *game) Reset(_ context.Context, seed int64, _ int) (envs.Start, error) {
	g.question = g.questions[envs.Rand("static", seed).IntN(len(g.questions))]
	g.attempt, g.outcome, g.running = 0, "", true
	return envs.Start{Instruction: g.instruction()}, nil
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
	if !g.running {
		return envs.Result{}, envs.ErrNotRunning
	}
	if strings.TrimSpace(action) == "" {
		return envs.Result{}, nil
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
	g.running = !r.Done
	return r, nil
}

func (g *game) instruction() string {
	text := "Answer the question. "
	switch g.options.Form {
	case "gsm8k":
		text += "The answer is a number."
	case "mmlu":
		text += "The answer is the letter of a choice."
	default:
		text += "Give the answer alone, without its derivation."
	}
	return text
}

// Solve gives the answer.
func (g *game) Solve() ([]string, bool) { return []string{g.question.gold}, g.running }

func (g *game) Close() error {
	g.running = false
	return nil
}
