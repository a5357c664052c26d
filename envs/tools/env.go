package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"gyre/envs"
	"gyre/envs/reward"
	"gyre/envs/sandbox"
)

// options are the settings of the environment.
type options struct {
	Tools     []string `option:"tools" doc:"the tools on offer: calculator, python"`
	Problems  string   `option:"problems" doc:"file of questions and answers (JSON, JSON Lines or Parquet), chosen by the seed; none: generated arithmetic"`
	Terms     [2]int   `option:"terms" doc:"fewest and most numbers of a generated question"`
	MaxNumber int      `option:"max_number" doc:"largest number of a generated question"`
	Grading   string   `option:"grading" doc:"when an answer counts as the right one: strict or lenient"`
	CallCost  float64  `option:"call_cost" doc:"taken off the reward for every call of a tool"`
	MaxOutput int      `option:"max_output" doc:"characters of a program's output that are shown"`
	Seconds   int      `option:"time_limit" doc:"seconds of processor time of a program"`
	MemoryMiB int      `option:"memory_mib" doc:"memory of a program"`
	Isolation string   `option:"isolation" doc:"full: programs are kept in; limits: only time and memory are limited, for programs that are trusted"`
	Python    string   `option:"python" doc:"interpreter that runs the programs"`
}

func init() {
	spec := func(tag, doc string, names ...string) envs.Spec {
		return envs.Spec{
			Tag: tag, Type: "tools", Doc: doc, MaxActions: 5, MaxReplyWords: 200,
			NewOptions: func() any {
				return &options{
					Tools: names, Terms: [2]int{2, 5}, MaxNumber: 999, Grading: string(reward.Lenient), MaxOutput: 2000,
					Seconds: 3, MemoryMiB: 512, Isolation: string(sandbox.Full), Python: "python3",
				}
			},
			New: func(o any) (envs.Env, error) { return newGame(o.(*options)) },
		}
	}
	envs.Register(
		spec("CalculatorQA", "questions with a calculator to call", "calculator"),
		spec("PythonQA", "questions with Python to call, in a sandbox", "python"),
	)
}

// game is the environment; it implements envs.Env, envs.Tooled, envs.ReplyReader and envs.Stopper.
type game struct {
	options   *options
	mode      reward.Mode
	tools     []tool
	questions []question // of a file; nil = generated ones
	question  question
	replies   []envs.Message // of tools, to the latest reply
	shown     bool           // replies have been observed
	calls     int
	outcome   string // of the answer
	running   bool
}

func newGame(o *options) (*game, error) {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if o.Terms[0] < 1 || o.Terms[1] < o.Terms[0] || o.Terms[1] > 100 {
		problem("option terms: expected two counts from 1 to 100, the smaller first, got [%d, %d]", o.Terms[0], o.Terms[1])
	}
	if o.MaxNumber < 1 {
		problem("option max_number: expected at least 1, got %d", o.MaxNumber)
	}
	if o.MaxOutput < 1 {
		problem("option max_output: expected at least 1, got %d", o.MaxOutput)
	}
	g := &game{options: o}
	var err error
	if g.mode, err = reward.ParseMode(o.Grading); err != nil {
		problem("option grading: %w", err)
	}
	for _, name := range o.Tools {
		switch name {
		case "calculator":
			g.tools = append(g.tools, calculator())
		case "python":
			box, err := sandbox.Shared(context.Background(), sandbox.Config{
				Python: o.Python, Time: time.Duration(o.Seconds) * time.Second, Memory: int64(o.MemoryMiB) << 20,
				Isolation: sandbox.Isolation(o.Isolation),
			})
			if err != nil {
				problems = append(problems, err)
				continue
			}
			g.tools = append(g.tools, python(box, o.MaxOutput))
		default:
			problem("option tools: expected calculator or python, got %q", name)
		}
	}
	if o.Problems != "" {
		if g.questions, err = readQuestions(o.Problems); err != nil {
			problems = append(problems, err)
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return g, nil
}

func (g *game) Reset(_ context.Context, seed int64) error {
	if n := int64(len(g.questions)); n > 0 {
		g.question = g.questions[(seed%n+n)%n]
	} else {
		g.question = newQuestion(envs.Rand("tools", seed), g.options.Terms, g.options.MaxNumber)
	}
	g.replies, g.shown, g.calls, g.outcome, g.running = nil, false, 0, "", true
	return nil
}

func (g *game) Observe() envs.Observation {
	g.shown = true
	switch {
	case g.outcome != "":
		return envs.Observation{Text: g.outcome}
	case g.replies != nil:
		return envs.Observation{Messages: g.replies}
	}
	return envs.Observation{Text: g.question.text}
}

// Step carries out a tool call, or takes an answer and ends the episode.
func (g *game) Step(ctx context.Context, action string) (envs.Result, error) {
	if !g.running {
		return envs.Result{}, envs.ErrNotRunning
	}
	if g.shown { // what comes now is another reply
		g.replies, g.shown = nil, false
	}
	c, isCall, malformed := parseCall(action)
	if isCall {
		result, valid, err := g.invoke(ctx, c, malformed)
		if err != nil {
			return envs.Result{}, err
		}
		g.calls++
		g.replies = append(g.replies, envs.Message{Role: "tool", Name: c.Name, CallID: "call_" + strconv.Itoa(g.calls), Content: result})
		return envs.Result{
			Reward: -g.options.CallCost, Valid: valid, Effective: valid,
			Parts: []envs.Part{{Name: "tool_calls", Value: 1}}, Info: map[string]float64{"tool_calls": 1},
		}, nil
	}
	correct := reward.GradeAnswer(action, g.question.gold, g.mode).Correct
	g.outcome, g.running = "The answer is wrong.", false
	r := envs.Result{Done: true, Valid: true, Effective: true, Success: correct, Parts: []envs.Part{{Name: "correctness"}}}
	if correct {
		g.outcome, r.Reward, r.Parts[0].Value = "The answer is right.", 1, 1
	}
	return r, nil
}

// ReadReply takes the tool calls of a reply, or its answer.
func (g *game) ReadReply(reply string, limit int) []string { return readReply(reply, limit) }

// StopStrings end a reply after a call, before the policy goes on to make up what the tool says.
func (g *game) StopStrings() []string { return []string{closeCall} }

// WriteReply writes tool calls, or an answer, as ReadReply reads them.
func (g *game) WriteReply(actions []string) string {
	if len(actions) > 0 && strings.HasPrefix(actions[0], openCall) {
		return strings.Join(actions, "\n")
	}
	return "<answer>" + strings.Join(actions, "") + "</answer>"
}

// Solve calls the first tool with what is to be computed and answers what it says. Questions of a file say no such thing: they are answered at once.
func (g *game) Solve() ([]string, bool) {
	switch {
	case !g.running:
		return nil, false
	case g.question.expression == "" || len(g.tools) == 0 || g.calls > 0:
		return []string{g.question.gold}, true
	}
	tool := g.tools[0]
	arguments, err := json.Marshal(map[string]string{tool.argument: g.question.expression})
	if err != nil {
		return nil, false
	}
	return []string{fmt.Sprintf(`%s{"name": %q, "arguments": %s}%s`, openCall, tool.name, arguments, closeCall)}, true
}

// Tools describes the tools to the chat template.
func (g *game) Tools() []envs.Tool {
	specs := make([]envs.Tool, len(g.tools))
	for i, t := range g.tools {
		specs[i] = t.spec()
	}
	return specs
}

func (g *game) Actions() []string { return nil }

func (g *game) Instruction() string {
	text := "Answer the question."
	for _, t := range g.tools {
		text += fmt.Sprintf(" You may call the tool %s as often as you need: %s{\"name\": %q, \"arguments\": {%q: \"…\"}}%s, where %q is %s.",
			t.name, openCall, t.name, t.argument, closeCall, t.argument, t.meaning)
	}
	return text + " A reply that calls a tool ends there; its result follows. Give the final answer alone, in <answer> and </answer>."
}

func (g *game) Close() error {
	g.running = false
	return nil
}
