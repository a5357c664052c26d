package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"gyre/envs"
	"gyre/internal/answer"
	"gyre/internal/nearest"
)

// Tool is something that a policy may call. Its argument is one text, unless it has a schema.
type Tool struct {
	Name, Description, Argument, Meaning string
	// Use returns what the policy is shown. An error is a failure of the tool itself and ends the episode.
	Use func(ctx context.Context, argument string) (string, error)

	Schema map[string]any // of the arguments, in place of Argument and Meaning
	// Call takes the place of Use where there is a schema, which it holds the arguments against.
	Call func(ctx context.Context, arguments map[string]any) (says string, valid bool, err error)
}

// Conversation is the half of an environment that offers tools: a policy calls them as often as it likes and then
// answers. Environments embed it. It implements what of envs.Env does not depend on how an answer is judged.
type Conversation struct {
	envs.Episode
	Offered []Tool

	question string
	replies  []envs.Message // of tools, to the latest reply
	shown    bool           // replies have been observed
	calls    int
	outcome  string // of the answer
}

// Ask starts an episode with a question. A reply ends after a call, before the policy goes on to make up what the tool
// says.
func (c *Conversation) Ask(question string) envs.Start {
	*c = Conversation{Offered: c.Offered, question: question}
	start := c.Begin(c.instruction(), nil)
	start.Tools, start.StopStrings = c.specs(), []string{closeCall}
	start.ReadReply, start.WriteReply = readReply, writeReply
	return start
}

// Answered ends the episode with the result of an answer; outcome is what Observe shows from now on.
func (c *Conversation) Answered(r envs.Result, outcome string) (envs.Result, error) {
	c.outcome = outcome
	r.Done, r.Valid, r.Effective = true, true, true
	return c.End(r)
}

// Calls is how many tools have been called in this episode.
func (c *Conversation) Calls() int { return c.calls }

func (c *Conversation) Observe() envs.Observation {
	c.shown = true
	switch {
	case c.outcome != "":
		return envs.Observation{Text: c.outcome}
	case c.replies != nil:
		return envs.Observation{Messages: c.replies}
	}
	return envs.Observation{Text: c.question}
}

const (
	openCall  = "<tool_call>"
	closeCall = "</tool_call>"
)

var calls = regexp.MustCompile(`(?s)` + openCall + `(.*?)(?:` + closeCall + `|$)`)

// readReply splits a reply into tool calls or, if it has none, takes its answer: the answer block, else the last
// \boxed{}.
func readReply(reply string, limit int) []string {
	reply = answer.AfterThought(reply)
	actions := Calls(reply, limit)
	if actions != nil || limit < 1 {
		return actions
	}
	if text, found := answer.Block(reply); found {
		return []string{strings.TrimSpace(text)}
	}
	if boxed, ok := answer.Boxed(reply); ok {
		return []string{boxed}
	}
	return nil
}

// Calls are the actions of a reply that call tools, at most limit of them.
func Calls(reply string, limit int) (actions []string) {
	for _, match := range calls.FindAllStringSubmatch(reply, -1) {
		if text := strings.TrimSpace(match[1]); text != "" && len(actions) < limit {
			actions = append(actions, openCall+text+closeCall)
		}
	}
	return actions
}

// writeReply writes tool calls, or an answer, as readReply reads them.
func writeReply(actions []string) string {
	if len(actions) > 0 && strings.HasPrefix(actions[0], openCall) {
		return strings.Join(actions, "\n")
	}
	return "<answer>" + strings.Join(actions, "") + "</answer>"
}

// CallOf is the action that calls a tool.
func CallOf(t Tool, argument string) string {
	var arguments strings.Builder
	encoder := json.NewEncoder(&arguments)
	encoder.SetEscapeHTML(false)                                        // for people and for tokens
	if encoder.Encode(map[string]string{t.Argument: argument}) != nil { // texts can always be encoded
		return ""
	}
	return fmt.Sprintf(`%s{"name": %q, "arguments": %s}%s`, openCall, t.Name, strings.TrimSpace(arguments.String()),
		closeCall)
}

// IsCall tells whether an action calls a tool.
func IsCall(action string) bool { return strings.HasPrefix(action, openCall) }

// Call carries out an action that calls a tool; any other action is not its business (isCall is false). An action
// before Ask or after the answer is envs.ErrNotRunning.
func (c *Conversation) Call(ctx context.Context, action string) (r envs.Result, isCall bool, err error) {
	if _, err := c.Take(action); err != nil {
		return r, false, err
	}
	if c.shown { // what comes now is another reply
		c.replies, c.shown = nil, false
	}
	text, isCall := strings.CutPrefix(action, openCall)
	if !isCall {
		return r, false, nil
	}
	name, says, valid, err := c.invoke(ctx, strings.TrimSuffix(text, closeCall))
	if err != nil {
		return r, true, err
	}
	c.calls++
	c.replies = append(c.replies, envs.Message{Role: "tool", Name: name, CallID: "call_" + strconv.Itoa(c.calls),
		Content: says})
	return envs.Result{
		Valid: valid, Effective: valid,
		Components: []envs.Component{{Name: "tool_calls", Value: 1}}, Info: map[string]float64{"tool_calls": 1},
	}, true, nil
}

// invoke uses the tool that a call names. What is wrong with the call is said to the policy; an error is the tool's
// own.
func (c *Conversation) invoke(ctx context.Context, text string) (name, says string, valid bool, err error) {
	var call struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if err := json.Unmarshal([]byte(text), &call); err != nil {
		return call.Name, "error: this is no JSON: " + err.Error(), false, nil
	}
	var inner string // some templates write the arguments as JSON inside a string
	if json.Unmarshal(call.Arguments, &inner) == nil {
		call.Arguments = json.RawMessage(inner)
	}
	var names []string
	for _, t := range c.Offered {
		if names = append(names, t.Name); t.Name != call.Name {
			continue
		}
		var arguments map[string]any
		if json.Unmarshal(call.Arguments, &arguments) != nil {
			return t.Name, strings.TrimSuffix(fmt.Sprintf("error: arguments must be an object with %q", t.Argument),
				` with ""`), false, nil
		}
		if t.Call != nil {
			says, valid, err = t.Call(ctx, arguments)
			return t.Name, says, valid && err == nil, err
		}
		argument, ok := arguments[t.Argument].(string)
		if !ok || len(arguments) != 1 {
			return t.Name, fmt.Sprintf("error: %s takes the one argument %q, a string", t.Name, t.Argument), false, nil
		}
		says, err = t.Use(ctx, argument)
		return t.Name, says, err == nil, err
	}
	says = fmt.Sprintf("error: no tool %q%s; there is %s", call.Name, nearest.Hint(call.Name, names),
		strings.Join(names, ", "))
	return call.Name, says, false, nil
}

// specs describes the tools to the chat template.
func (c *Conversation) specs() []envs.Tool {
	specs := make([]envs.Tool, len(c.Offered))
	for i, t := range c.Offered {
		specs[i] = envs.Tool{Name: t.Name, Description: t.Description, Parameters: t.Schema}
		if t.Schema == nil {
			specs[i].Parameters = Texts([2]string{t.Argument, t.Meaning})
		}
	}
	return specs
}

// Texts is the schema of an object of texts, all of them required: their names and what they mean.
func Texts(arguments ...[2]string) map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, a := range arguments {
		properties[a[0]] = map[string]any{"type": "string", "description": a[1]}
		required = append(required, a[0])
	}
	return map[string]any{"type": "object", "properties": properties, "required": required}
}

func (c *Conversation) instruction() string {
	text := "Answer the question."
	for _, t := range c.Offered {
		if t.Schema != nil {
			schema, _ := json.Marshal(t.Schema) // of maps, lists and texts: it can be written
			text += fmt.Sprintf(" You may call the tool %s as often as you need: %s{\"name\": %q, \"arguments\": …}%s; "+
				"the schema of its arguments is %s.", t.Name, openCall, t.Name, closeCall, schema)
			continue
		}
		text += fmt.Sprintf(" You may call the tool %s as often as you need: %s{\"name\": %q, \"arguments\": {%q: "+
			"\"…\"}}%s, where %q is %s.", t.Name, openCall, t.Name, t.Argument, closeCall, t.Argument, t.Meaning)
	}
	return text + " A reply that calls a tool ends there; its result follows. Give the final answer alone, in " +
		"<answer> and </answer>."
}
