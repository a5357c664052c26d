package episodes

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"gyre/envs"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/model/chat/replies"
)

// Message is what a prompt says under one role.
type Message struct {
	Role string `json:"role,omitempty"`
	Text string `json:"text"`
}

// Part is a piece of a reply.
type Part struct {
	Kind string `json:"kind"` // thought, action, call or text
	Text string `json:"text"`
}

// header is how a template begins a message behind its special tokens.
var header = regexp.MustCompile(`^(system|user|assistant|tool|ipython|developer)(\n+|$)`)

// owners says who wrote each token. What the policy sampled is recorded; in prompts, special tokens, the roles behind
// them and the beginning of the reply are the template's: no other text can hold a special token.
func (v *View) owners(e *episode.Episode) {
	for t := range v.Tokens.Owner {
		if v.Tokens.Owner[t] = Environment; e.Mask[t] {
			v.Tokens.Owner[t] = Policy
		}
	}
	for _, t := range v.Tokens.Special {
		if !e.Mask[t] {
			v.Tokens.Owner[t] = Template
		}
	}
	at := 0
	for _, turn := range e.Turns {
		v.segments(at, turn.Reply, func(from, to int, role string, head int) {
			owner := Environment
			if role == "assistant" {
				owner = Earlier
				if to == turn.Reply {
					owner = Template // of the reply that follows
				}
			}
			for t := from; t < to; t++ {
				if v.Tokens.Owner[t] = owner; head > 0 {
					v.Tokens.Owner[t] = Template
				}
				head -= len(v.Tokens.Text[t])
			}
		})
		for t := turn.Reply; t < turn.End; t++ {
			if !e.Mask[t] {
				v.Tokens.Owner[t] = Earlier
			}
		}
		at = turn.End
	}
}

// segments visits the runs of tokens between special ones in a prompt, with the role that a run begins with and how
// many bytes of it say so.
func (v *View) segments(from, to int, visit func(from, to int, role string, head int)) {
	role, begin := "", from
	flush := func(end int) {
		text := strings.Join(v.Tokens.Text[begin:end], "")
		head := len(text) - len(strings.TrimLeft(text, "\n"))
		if match := header.FindStringSubmatch(text); match != nil && begin > 0 && v.special(begin-1) {
			role, head = match[1], len(match[0])
		} else if strings.TrimSpace(text) != "" && head == 0 && (begin == 0 || !v.special(begin-1)) {
			role = "" // no template begins like this
		}
		if end > begin {
			visit(begin, end, role, head)
		}
	}
	for t := from; t < to; t++ {
		if v.special(t) {
			flush(t)
			begin = t + 1
		}
	}
	flush(to)
}

func (v *View) special(token int) bool {
	_, found := slices.BinarySearch(v.Tokens.Special, token)
	return found
}

// messages are what the tokens of a prompt say, markup left out.
func (v *View) messages(from, to int) (out []Message) {
	v.segments(from, to, func(from, end int, role string, head int) {
		text := strings.Join(v.Tokens.Text[from:end], "")
		if role == "assistant" && end == to {
			return // the beginning of the reply
		}
		if text = strings.Trim(text[min(head, len(text)):], "\n"); text != "" {
			out = append(out, Message{role, text})
		}
	})
	return out
}

// blocks are the parts of a text that have a form; one that is not closed goes to the text's end. A call among them is
// one that could not be read.
var blocks = regexp.MustCompile(`(?s)<(think|answer|tool_call)>(.*?)(?:</(?:think|answer|tool_call)>|$)`)

var kinds = map[string]string{"think": "thought", "answer": "action", "tool_call": "call"}

// parts takes a reply apart. A block that the prompt has begun counts.
func (s *Source) parts(v *View, reply, end int) (out []Part) {
	add := func(kind, text string) {
		if text = strings.Trim(text, "\n"); strings.TrimSpace(text) != "" {
			out = append(out, Part{kind, text})
		}
	}
	read := []replies.Part{{Kind: replies.Content, Text: strings.Join(v.Tokens.Text[reply:end], "")}}
	if s.tokenizer != nil {
		some := []chat.Tool{{}} // calls are read whatever was offered
		read = s.tokenizer.ReadReply(v.Tokens.ID[:reply], v.Tokens.ID[reply:end], some)
	}
	for i, p := range read {
		switch p.Kind {
		case replies.Thinking:
			add("thought", p.Text)
			continue
		case replies.Calls:
			add("call", p.Call.String())
			continue
		}
		text, at := p.Text, 0
		for _, begun := range []string{"<think>", "<answer>"} {
			if i == 0 && strings.HasSuffix(strings.Join(v.Tokens.Text[:reply], ""), begun) {
				text = begun + text
			}
		}
		for _, m := range blocks.FindAllStringSubmatchIndex(text, -1) {
			add("text", text[at:m[0]])
			add(kinds[text[m[2]:m[3]]], text[m[4]:m[5]])
			at = m[1]
		}
		add("text", text[at:])
	}
	return out
}

// replay plays the actions again for the boards. Only environments of this program that draw boards are played: others
// may start programs, or have luck of their own.
func (s *Source) replay(ctx context.Context, e *episode.Episode, v *View) error {
	if s.config == nil || s.tokenizer == nil || len(e.Turns) == 0 {
		return nil
	}
	sources := s.config.Envs
	if v.Kind != "step" && v.Kind != "analysis" {
		sources = s.config.Validation.Envs
	}
	i := slices.IndexFunc(sources, func(env config.Env) bool { return env.Tag == e.Tag })
	if i < 0 {
		return nil
	}
	spec, err := envs.Lookup(e.Tag)
	if err != nil || spec.New == nil {
		return nil
	}
	env, err := spec.Make(sources[i].Options)
	if err != nil {
		return fmt.Errorf("no boards: %w", err)
	}
	_, pictured := env.(envs.Pictured)
	if err := env.Close(); err != nil || !pictured {
		return err
	}
	player := rollout.NewPlayer(s.tokenizer, nil, s.config.Rollout, s.config.Rewards, 0)
	defer player.Close()
	frames, err := player.Replay(ctx, sources[i], e)
	if err != nil {
		return fmt.Errorf("no boards: the episode cannot be replayed: %w", err)
	}
	v.Start = frames[0].Board
	for k := range min(len(v.Turns), len(frames)-1) {
		v.Turns[k].Board, v.Turns[k].Actions = frames[k+1].Board, frames[k+1].Actions
	}
	return nil
}
