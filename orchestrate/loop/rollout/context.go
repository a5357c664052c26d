package rollout

import (
	"fmt"
	"strings"

	"gyre/orchestrate/loop/generation"
	"gyre/orchestrate/model/chat"
)

// The context modes of config.Rollout.Context that forget; "full" does not.
const (
	contextWindow = "window"
	contextSingle = "single_turn"
)

// prompt adds the next turn's prompt to the transcript and reports whether it fits: with rollout.max_tokens after it,
// in rollout.max_length. A mode that forgets drops the oldest turns until it does.
//
// A prompt that continues the sequence before it extends that sequence; one that forgets a turn, or describes turns
// in other words, starts another sequence. Each reply is sampled, and trained on, in exactly the sequence that it
// ends.
func (r *runner) prompt(next view) (bool, error) {
	mode := r.player.rollout.Context
	forgets := mode == contextWindow || mode == contextSingle
	first := r.first
	if w := r.player.rollout.Window; forgets && w > 0 {
		first = max(first, len(r.turns)+1-w)
	}
	if mode != contextSingle && first == r.first { // nothing is forgotten but for want of room
		ids, err := r.promptAfter(r.transcript.conversation, r.turns, next)
		if err != nil {
			return false, err
		}
		if r.fits(r.transcript.length() + len(ids)) {
			r.transcript.observe(ids)
			return true, nil
		}
		if !forgets {
			return false, nil
		}
		first++
		r.squeezed++
	}
	for ; first <= len(r.turns); first++ {
		conversation, ids, err := r.sequence(first, next)
		if err != nil {
			return false, err
		}
		if r.fits(len(ids)) {
			r.first = first
			r.transcript.restart(conversation, ids)
			return true, nil
		}
		r.squeezed++
	}
	return false, nil
}

// promptAfter gives the prompt of a turn that follows others (or none) in a conversation.
func (r *runner) promptAfter(conversation *chat.Conversation, before []turn, next view) (ids []int32, err error) {
	var spans []chat.Span
	if len(before) == 0 {
		spans, err = conversation.Open(r.prompts.open(r.game.rules, next), r.prefix())
	} else {
		spans, err = conversation.Continue(before[len(before)-1].reply, r.prompts.next(r.game.rules, next), r.prefix())
	}
	return tokens(spans), err
}

func tokens(spans []chat.Span) (ids []int32) {
	for _, span := range spans {
		ids = append(ids, span.IDs...)
	}
	return ids
}

// sequence begins the next turn's conversation anew in a mode that forgets the turns before first: with the turns
// since, replies among them, or with a summary of them.
func (r *runner) sequence(first int, next view) (conversation *chat.Conversation, ids []int32, err error) {
	if conversation, err = r.conversation(); err != nil {
		return nil, nil, err
	}
	if r.player.rollout.Context == contextSingle {
		messages := r.prompts.remember(r.game.rules, next, r.turns, first, r.player.rollout.Memory)
		spans, err := conversation.Open(messages, r.prefix())
		return conversation, tokens(spans), err
	}
	shown := r.turns[first:]
	for i := range len(shown) + 1 {
		asked := next
		if i < len(shown) {
			asked = shown[i].view
		}
		prompt, err := r.promptAfter(conversation, shown[:i], asked)
		if err != nil {
			return nil, nil, err
		}
		ids = append(ids, prompt...)
		if i < len(shown) {
			ids = append(ids, shown[i].reply...)
		}
	}
	return conversation, ids, nil
}

// chat is the pending turn's prompt as messages.
func (r *runner) chat() generation.Chat {
	c := generation.Chat{Tools: r.game.tools, Prefix: r.prefix()}
	if r.player.rollout.Context == contextSingle {
		c.Messages = r.prompts.remember(r.game.rules, r.pending, r.turns, r.first, r.player.rollout.Memory)
		return c
	}
	say := r.prompts.open
	for _, turn := range r.turns[r.first:] {
		c.Messages = append(append(c.Messages, say(r.game.rules, turn.view)...),
			chat.Message{Role: "assistant", Content: r.prefix() + r.player.Text(turn.reply)})
		say = r.prompts.next
	}
	c.Messages = append(c.Messages, say(r.game.rules, r.pending)...)
	return c
}

// conversation starts an empty one with the environment's tools.
func (r *runner) conversation() (*chat.Conversation, error) {
	conversation := r.player.tokenizer.NewConversation()
	return conversation, conversation.Offer(chat.Offer{Tools: r.game.tools})
}

// remember gives the messages of a turn that sees the turns before, from first on, as text.
func (p prompts) remember(r rules, v view, turns []turn, first int, memory string) []chat.Message {
	if len(turns) == 0 {
		return p.open(r, v)
	}
	var s strings.Builder
	if !p.compact {
		fmt.Fprintf(&s, "You have played %s. ", count(len(turns), "turn"))
		if shown := len(turns) - first; shown < len(turns) {
			fmt.Fprintf(&s, "These are the last %d of them.\n\n", shown)
		} else {
			s.WriteString("These are all of them.\n\n")
		}
	}
	for i, turn := range turns[first:] {
		said := turn.text
		if memory == "actions" {
			if said = strings.Join(turn.actions, " "+p.format.separator+" "); said == "" {
				said = "none"
			}
		}
		if p.compact {
			fmt.Fprintf(&s, "%s\n%s\n", turn.view.state.String(), said)
			continue
		}
		fmt.Fprintf(&s, "Turn %d\nState:\n%s\nReply: %s\nReward: %s\n\n", first+i+1, turn.view.state.String(), said,
			number(turn.reward))
	}
	messages := p.open(r, v)
	last := len(messages) - 1
	for ; last > 0 && messages[last].Role != "user"; last-- {
	}
	messages[last].Content = s.String() + messages[last].Content
	return messages
}
