package rollout

import (
	"fmt"
	"strings"

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
		spans, err := r.promptAfter(r.transcript.conversation, r.turns, next)
		if err != nil {
			return false, err
		}
		if r.fits(r.transcript.length() + length(spans)) {
			r.transcript.observe(spans)
			return true, nil
		}
		if !forgets {
			return false, nil
		}
		first++
		r.squeezed++
	}
	for ; first <= len(r.turns); first++ {
		s, err := r.sequence(first, next)
		if err != nil {
			return false, err
		}
		if r.fits(s.length()) {
			r.first = first
			r.transcript.restart(s)
			return true, nil
		}
		r.squeezed++
	}
	return false, nil
}

// promptAfter gives the prompt of a turn that follows others (or none) in a conversation.
func (r *runner) promptAfter(conversation *chat.Conversation, before []turn, next view) ([]chat.Span, error) {
	if len(before) == 0 {
		return conversation.Open(r.prompts.open(r.game.rules, next), r.prefix())
	}
	return conversation.Continue(before[len(before)-1].reply, r.prompts.next(r.game.rules, next), r.prefix())
}

// sequence is a conversation that begins anew: prompts with the replies between them.
type sequence struct {
	conversation *chat.Conversation
	prompts      [][]chat.Span
	replies      [][]int32 // one fewer than prompts
}

func (s sequence) length() int {
	n := 0
	for i, spans := range s.prompts {
		n += length(spans)
		if i < len(s.replies) {
			n += len(s.replies[i])
		}
	}
	return n
}

// sequence is the next turn's in a mode that forgets the turns before first: the turns since as a conversation, or a
// summary of them.
func (r *runner) sequence(first int, next view) (s sequence, err error) {
	if s.conversation, err = r.conversation(); err != nil {
		return s, err
	}
	if r.player.rollout.Context == contextSingle {
		messages := r.prompts.remember(r.game.rules, next, r.turns, first, r.player.rollout.Memory)
		spans, err := s.conversation.Open(messages, r.prefix())
		s.prompts = [][]chat.Span{spans}
		return s, err
	}
	shown := r.turns[first:]
	for i := range shown {
		spans, err := r.promptAfter(s.conversation, shown[:i], shown[i].view)
		if err != nil {
			return s, err
		}
		s.prompts, s.replies = append(s.prompts, spans), append(s.replies, shown[i].reply)
	}
	spans, err := r.promptAfter(s.conversation, shown, next)
	s.prompts = append(s.prompts, spans)
	return s, err
}

// conversation starts an empty one with the environment's tools.
func (r *runner) conversation() (*chat.Conversation, error) {
	conversation := r.player.tokenizer.NewConversation()
	return conversation, conversation.Offer(r.game.tools)
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
