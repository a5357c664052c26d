// Package tools asks questions that are easier with tools: a calculator and Python, which a policy calls in the
// format that chat templates teach.
//
//	<tool_call>{"name": "calculator", "arguments": {"expression": "37 * 12"}}</tool_call>
//
// A reply with calls is answered by one message of role "tool" per call; a reply without is the answer and ends the
// episode. What a tool says is the environment's text: it is never trained on, and no markup in it is taken for
// markup.
package tools

import (
	"context"
	"errors"
	"fmt"

	"gyre/envs"
	"gyre/envs/mcp"
	"gyre/envs/reward"
	"gyre/envs/sandbox"
)

// options are the settings of the environment.
type options struct {
	Tools     []string `option:"tools" doc:"the tools on offer: calculator, python"`
	Problems  string   `option:"problems" doc:"file of questions and answers, chosen by the seed; none: generated arithmetic"`
	Terms     [2]int   `option:"terms" range:"[1,100]" doc:"fewest and most numbers of a generated question"`
	MaxNumber int      `option:"max_number" range:"[1,)" doc:"largest number of a generated question"`
	Grading   string   `option:"grading" oneof:"strict,lenient" doc:"when an answer counts as the right one"`
	MaxOutput int      `option:"max_output" range:"[1,)" doc:"characters of a program's or an MCP server's output that are shown"`
	sandbox.Config
	MCP
}

// MCP are the options of package mcp, under a name of their own beside those of the sandbox.
type MCP = mcp.Config

func init() {
	tag := envs.Native("tools", options{Terms: [2]int{2, 5}, MaxNumber: 999, Grading: string(reward.Lenient),
		MaxOutput: 2000, Config: sandbox.Defaults, MCP: mcp.Defaults}, newGame)
	envs.Register(
		tag("CalculatorQA", "questions with a calculator to call", 5, 200,
			func(o *options) { o.Tools = []string{"calculator"} }),
		tag("PythonQA", "questions with Python to call, in a sandbox", 5, 200,
			func(o *options) { o.Tools = []string{"python"} }),
		tag("McpQA", "questions with the tools of MCP servers (option mcp)", 5, 200, nil),
	)
}

// game is the environment; it implements envs.Env and envs.Solver.
type game struct {
	Conversation
	options   *options
	servers   *mcp.Set   // from the first episode on
	questions []question // of a file; nil = generated ones
	question  question
}

func newGame(o *options) (*game, error) {
	g := &game{options: o}
	var err error
	if o.Terms[1] < o.Terms[0] {
		err = fmt.Errorf("option terms: expected the smaller count first, got [%d, %d]", o.Terms[0], o.Terms[1])
	}
	for _, name := range o.Tools {
		switch name {
		case "calculator":
			g.Offered = append(g.Offered, calculator())
		case "python":
			box, failure := sandbox.Shared(context.Background(), o.Config)
			err = errors.Join(err, failure)
			g.Offered = append(g.Offered, python(box, o.MaxOutput))
		default:
			err = errors.Join(err, fmt.Errorf("option tools: expected calculator or python, got %q", name))
		}
	}
	if o.Problems != "" {
		var failure error
		g.questions, failure = readQuestions(o.Problems)
		err = errors.Join(err, failure)
	}
	return g, err
}

// offer asks the servers, once, what they offer: not where an environment is made, which a viewer of episodes also
// does.
func (g *game) offer() (err error) {
	if g.servers != nil {
		return nil
	}
	var taken []string
	for _, t := range g.Offered {
		taken = append(taken, t.Name)
	}
	servers, err := mcp.Open(g.options.MCP, taken...)
	if err != nil {
		return err
	}
	offered := append(g.Offered, served(servers, g.options.MaxOutput)...)
	if len(offered) == 0 {
		return errors.New("no tools are on offer: set the option tools or mcp")
	}
	g.servers, g.Offered = servers, offered
	return nil
}

func (g *game) Reset(_ context.Context, seed int64, _ int) (envs.Start, error) {
	g.servers.End()
	if err := g.offer(); err != nil {
		return envs.Start{}, err
	}
	if g.questions != nil {
		g.question = envs.At(g.questions, seed)
	} else {
		g.question = newQuestion(envs.Rand("tools", seed), g.options.Terms, g.options.MaxNumber)
	}
	return g.Ask(g.question.text), nil
}

// Step carries out a tool call, or takes an answer and ends the episode.
func (g *game) Step(ctx context.Context, action string) (envs.Result, error) {
	r, isCall, err := g.Call(ctx, action)
	if isCall || err != nil {
		return r, err
	}
	g.servers.End()
	outcome := "The answer is wrong."
	if r.Success = reward.GradeAnswer(action, g.question.gold, reward.Mode(g.options.Grading)).Correct; r.Success {
		outcome = "The answer is right."
	}
	r.Reward = envs.Indicator(r.Success)
	r.Components = []envs.Component{{Name: "correctness", Value: r.Reward}}
	return g.Answered(r, outcome)
}

// Close ends the episode, and with it the sessions of its servers.
func (g *game) Close() error {
	g.servers.End()
	return g.Conversation.Close()
}

// Solve calls the first tool with what is to be computed and answers what it says. Questions of a file say no such
// thing: they are answered at once.
func (g *game) Solve() ([]string, bool) {
	switch {
	case !g.Running():
		return nil, false
	case g.question.expression == "" || g.Offered[0].Call != nil || g.Calls() > 0:
		return []string{g.question.gold}, true
	}
	return []string{CallOf(g.Offered[0], g.question.expression)}, true
}
