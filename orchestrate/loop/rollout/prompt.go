package rollout

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"gyre/envs"
	"gyre/orchestrate/config"
	"gyre/orchestrate/model/chat"
)

// promptCompact is the value of config.Rollout.Prompt that shows the state alone.
const promptCompact = "compact"

// rules is what an episode's prompts say about the game as a whole.
type rules struct {
	instruction       string
	actions           []string // nil = free text
	maxActions        int
	maxActionsPerTurn int
	replyWords        int
	plain             bool // a reply is taken as it is
}

// view is what one turn's prompt says.
type view struct {
	turn        int // from 1
	state       envs.Observation
	actionsLeft int
	invalid     bool    // the reply before named no legal action
	reward      float64 // of the turn before
}

// prompts words the messages. Compact prompts hold nothing but the state: policies of a million parameters learn the
// rules from their rewards, and every token costs them attention.
type prompts struct {
	compact bool
	format  replyFormat
}

func newPrompts(c config.Rollout) prompts {
	return prompts{c.Prompt == promptCompact, replyFormat{think: c.Think, separator: c.ActionSeparator}}
}

// open gives the messages of the first turn.
func (p prompts) open(r rules, v view) []chat.Message {
	if p.compact {
		return v.messages(v.state.Text)
	}
	messages := v.messages(p.turn(r, v))
	system := p.system(r)
	if len(v.state.Messages) > 0 { // the environment words its turns: how to reply is said once and for all
		if !r.plain {
			system += "\n\nWrite your replies " + p.form(r) +
				" and add nothing around it. Replies in another form are not carried out."
		}
		if messages[0].Role == "system" {
			system += "\n\n" + messages[0].Content
			messages = messages[1:]
		}
	}
	return append([]chat.Message{{Role: "system", Content: system}}, messages...)
}

// next gives the message that follows a reply.
func (p prompts) next(r rules, v view) []chat.Message {
	if p.compact {
		return v.messages(v.state.Text)
	}
	return v.messages("Reward: " + number(v.reward) + "\n\n" + p.turn(r, v))
}

// messages are the environment's own, or one of the user that says text.
func (v view) messages(text string) []chat.Message {
	if len(v.state.Messages) > 0 {
		return messagesOf(v.state)
	}
	return []chat.Message{{Role: "user", Content: text}}
}

func messagesOf(o envs.Observation) []chat.Message {
	list := make([]chat.Message, len(o.Messages))
	for i, m := range o.Messages {
		list[i] = chat.Message{Role: m.Role, Content: m.Content, Name: m.Name, ToolCallID: m.CallID}
	}
	return list
}

func (p prompts) system(r rules) string {
	var s strings.Builder
	s.WriteString("You are a thoughtful assistant who solves tasks step by step.")
	if r.instruction != "" {
		s.WriteString("\n\n" + r.instruction)
	}
	if len(r.actions) > 0 {
		fmt.Fprintf(&s, "\n\nActions you can choose from: %s.", strings.Join(r.actions, ", "))
		fmt.Fprintf(&s, "\nIn total you may take %s", count(r.maxActions, "action"))
		if r.maxActionsPerTurn > 1 && r.maxActions > 1 {
			fmt.Fprintf(&s, ", up to %d in one reply with %q between them", r.maxActionsPerTurn, p.format.separator)
		}
		s.WriteString(".")
	}
	return s.String()
}

func (p prompts) turn(r rules, v view) string {
	var s strings.Builder
	fmt.Fprintf(&s, "Turn %d\nState:\n%s\n\n", v.turn, v.state.Text)
	if v.invalid {
		s.WriteString("Your last reply held no action that could be carried out, so nothing has changed. Try once " +
			"more.\n")
	}
	fmt.Fprintf(&s, "You have %s left.", count(v.actionsLeft, "action"))
	if !r.plain {
		fmt.Fprintf(&s, " Write your reply %s and add nothing around it. Replies in another form are not carried out.",
			p.form(r))
	}
	if r.replyWords > 0 {
		fmt.Fprintf(&s, " Use at most %d words.", r.replyWords)
	}
	return s.String()
}

// form shows how a reply looks. Where actions have names the example holds some of them: small models copy what they
// see, and a copied action can at least be carried out and rewarded.
func (p prompts) form(r rules) string {
	if len(r.actions) == 0 {
		return "as " + p.format.example("your answer")
	}
	example := r.actions[len(r.actions)-1:]
	if r.maxActionsPerTurn > 1 && r.maxActions > 1 && len(r.actions) > 1 {
		example = []string{r.actions[len(r.actions)-1], r.actions[0]}
	}
	return "in the form " + p.format.example(strings.Join(example, " "+p.format.separator+" ")) +
		", with actions of your own choice,"
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// number prints a reward without the noise of binary fractions.
func number(v float64) string { return strconv.FormatFloat(math.Round(v*1e4)/1e4, 'f', -1, 64) }

// replyFormat is how a reply is written: an optional think block and an answer block with actions.
type replyFormat struct {
	think     bool
	separator string
}

var (
	thinkAnswer = regexp.MustCompile(`(?s)<think>(.*?)</think>\s*<answer>(.*?)</answer>`)
	answerOnly  = regexp.MustCompile(`(?s)<answer>(.*?)</answer>`)
	markers     = strings.NewReplacer("<think>", "", "</think>", "", "<answer>", "", "</answer>", "")
)

// prefix opens the reply's first block. It is put into the prompt, so the template owns it and the policy continues.
func (f replyFormat) prefix() string {
	if f.think {
		return "<think>"
	}
	return "<answer>"
}

// parse reads the actions of a reply, given without its prefix: the first complete match counts, at most limit actions
// are taken. A reply that is cut off or lacks a block has no actions.
func (f replyFormat) parse(reply string, limit int) []string {
	pattern, answer := answerOnly, 1
	if f.think {
		pattern, answer = thinkAnswer, 2
	}
	match := pattern.FindStringSubmatch(f.prefix() + reply)
	if match == nil {
		return nil
	}
	var actions []string
	for _, action := range strings.Split(markers.Replace(match[answer]), f.separator) {
		if action = strings.TrimSpace(action); action != "" && len(actions) < limit {
			actions = append(actions, action)
		}
	}
	return actions
}

// write is the shortest reply, without its prefix, that parse reads as these actions.
func (f replyFormat) write(actions []string) string {
	answer := strings.Join(actions, " "+f.separator+" ") + "</answer>"
	if f.think {
		return "</think><answer>" + answer
	}
	return answer
}

// example shows the format with the given answer.
func (f replyFormat) example(answer string) string {
	if f.think {
		return "<think>your reasoning</think><answer>" + answer + "</answer>"
	}
	return "<answer>" + answer + "</answer>"
}
