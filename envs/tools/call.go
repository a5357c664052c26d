package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"gyre/envs"
	"gyre/envs/arithmetic"
	"gyre/envs/sandbox"
	"gyre/internal/answer"
	"gyre/internal/nearest"
)

const (
	openCall  = "<tool_call>"
	closeCall = "</tool_call>"
)

var (
	calls       = regexp.MustCompile(`(?s)` + openCall + `(.*?)(?:` + closeCall + `|$)`)
	answerBlock = regexp.MustCompile(`(?s)<answer>(.*?)</answer>`)
)

// readReply splits a reply into tool calls or, if it has none, takes its answer: the answer block, else the last \boxed{}.
// What is thought before </think> does not count.
func readReply(reply string, limit int) []string {
	if _, after, found := strings.Cut(reply, "</think>"); found {
		reply = after
	}
	var actions []string
	for _, match := range calls.FindAllStringSubmatch(reply, -1) {
		if text := strings.TrimSpace(match[1]); text != "" && len(actions) < limit {
			actions = append(actions, openCall+text+closeCall)
		}
	}
	if actions != nil || limit < 1 {
		return actions
	}
	if match := answerBlock.FindStringSubmatch(reply); match != nil {
		return []string{strings.TrimSpace(match[1])}
	}
	if before, _, closed := strings.Cut(reply, "</answer>"); closed { // the prompt has opened the block
		return []string{strings.TrimSpace(before)}
	}
	if boxed, ok := answer.Boxed(reply); ok {
		return []string{boxed}
	}
	return nil
}

// call is what a policy asks of a tool.
type call struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// parseCall reads an action that is a tool call.
func parseCall(action string) (c call, isCall bool, err error) {
	text, isCall := strings.CutPrefix(action, openCall)
	if !isCall {
		return c, false, nil
	}
	if err := json.Unmarshal([]byte(strings.TrimSuffix(text, closeCall)), &c); err != nil {
		return c, true, fmt.Errorf("this is no JSON: %w", err)
	}
	var inner string // some templates write the arguments as JSON inside a string
	if json.Unmarshal(c.Arguments, &inner) == nil {
		c.Arguments = json.RawMessage(inner)
	}
	return c, true, nil
}

// tool is something that a policy may call. Its argument is one text.
type tool struct {
	name, description, argument, meaning string
	use                                  func(ctx context.Context, argument string) (string, error)
}

// spec describes a tool to chat templates.
func (t tool) spec() envs.Tool {
	return envs.Tool{Name: t.name, Description: t.description, Parameters: map[string]any{
		"type":       "object",
		"properties": map[string]any{t.argument: map[string]any{"type": "string", "description": t.meaning}},
		"required":   []string{t.argument},
	}}
}

func calculator() tool {
	grammar := arithmetic.Grammar{Decimals: true, Powers: true}
	return tool{
		name: "calculator", description: "Computes an arithmetic expression.", argument: "expression",
		meaning: "numbers with + - * / ** and parentheses",
		use: func(_ context.Context, expression string) (string, error) {
			value, err := grammar.Evaluate(expression)
			if err != nil {
				return "error: " + err.Error(), nil
			}
			if value == math.Trunc(value) && math.Abs(value) < 1<<53 {
				return strconv.FormatFloat(value, 'f', -1, 64), nil
			}
			return strconv.FormatFloat(value, 'g', 15, 64), nil
		},
	}
}

// python runs programs in the sandbox. Every call starts afresh.
func python(box *sandbox.Sandbox, most int) tool {
	return tool{
		name: "python", description: "Runs a Python program and returns what it prints and the value of its last line.", argument: "code",
		meaning: "the program",
		use: func(ctx context.Context, code string) (string, error) {
			outcomes, err := box.Run(ctx, sandbox.Job{Program: code, Echo: true})
			if err != nil {
				return "", err
			}
			o := outcomes[0]
			text := strings.TrimRight(o.Stdout, "\n")
			if len(text) > most {
				text = strings.ToValidUTF8(text[:most], "") + "\n… (cut off)"
			}
			switch {
			case o.Status == sandbox.Failed:
				text += "\nerror: " + o.Error
			case o.Status != sandbox.OK:
				text += "\nerror: stopped (" + string(o.Status) + ")"
			}
			if text = strings.TrimPrefix(text, "\n"); text == "" {
				text = "(no output)"
			}
			return text, nil
		},
	}
}

// invoke carries out a call. What goes wrong with it is told to the policy; an error is the tool's own failure.
func (g *game) invoke(ctx context.Context, c call, malformed error) (result string, valid bool, err error) {
	if malformed != nil {
		return "error: " + malformed.Error(), false, nil
	}
	names := make([]string, len(g.tools))
	for i, t := range g.tools {
		names[i] = t.name
		if t.name != c.Name {
			continue
		}
		var arguments map[string]any
		if err := json.Unmarshal(c.Arguments, &arguments); err != nil {
			return "error: arguments must be an object with " + strconv.Quote(t.argument), false, nil
		}
		argument, ok := arguments[t.argument].(string)
		if !ok || len(arguments) != 1 {
			return "error: " + t.name + " takes the one argument " + strconv.Quote(t.argument) + ", a string", false, nil
		}
		result, err = t.use(ctx, argument)
		return result, err == nil, err
	}
	return fmt.Sprintf("error: no tool %q%s; there is %s", c.Name, nearest.Hint(c.Name, names), strings.Join(names, ", ")), false, nil
}
