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

// past is a turn that lies behind.
type past struct {
	view    view
	reply   []int32 // as it stands in the episode
	text    string  // what it said, opened by the prefix
	actions []string
	reward  float64
}

// ask adds the next turn's prompt to the transcript and reports whether it fits: with rollout.max_tokens after it, in
// rollout.max_length. A mode that forgets drops the oldest turns until it does.
//
// A prompt that continues the sequence before it extends that sequence; one that forgets a turn, or tells of turns in other words,
// starts another sequence. Each reply is sampled, and trained on, in exactly the sequence that it ends.
func (s *seat) ask(next view) (bool, error) {
	switch s.player.rollout.Context {
	case contextWindow:
		return s.askWindow(next)
	case contextSingle:
		return s.askSummary(next)
	}
	spans, err := s.continued(s.talk.conversation, s.past, next)
	if err != nil || !s.fits(s.talk.length()+length(spans)) {
		return false, err
	}
	s.talk.observe(spans)
	return true, nil
}

// continued gives the prompt of a turn that follows others (or none) in a conversation.
func (s *seat) continued(conversation *chat.Conversation, before []past, next view) ([]chat.Span, error) {
	prompts, prefix := s.prompts, s.prefix()
	if len(before) == 0 {
		return conversation.Open(prompts.open(s.game.rules, next), prefix)
	}
	return conversation.Continue(before[len(before)-1].reply, prompts.next(s.game.rules, next), prefix)
}

func (s *seat) askWindow(next view) (bool, error) {
	first := s.first
	if w := s.player.rollout.Window; w > 0 {
		first = max(first, len(s.past)+1-w)
	}
	if first == s.first { // nothing is forgotten but for want of room
		spans, err := s.continued(s.talk.conversation, s.past, next)
		if err != nil {
			return false, err
		}
		if s.fits(s.talk.length() + length(spans)) {
			s.talk.observe(spans)
			return true, nil
		}
		first++
		s.squeezed++
	}
	for ; first <= len(s.past); first++ {
		conversation, spans, replies, err := s.retold(s.past[first:], next)
		if err != nil {
			return false, err
		}
		total := 0
		for i, turn := range spans {
			total += length(turn)
			if i < len(replies) {
				total += len(replies[i])
			}
		}
		if s.fits(total) {
			s.first = first
			s.talk.restart(conversation, spans, replies)
			return true, nil
		}
		s.squeezed++
	}
	return false, nil
}

// retold makes a conversation of some last turns and the next: the prompt of each, and the replies between them as they were.
func (s *seat) retold(shown []past, next view) (*chat.Conversation, [][]chat.Span, [][]int32, error) {
	conversation, err := s.conversation()
	if err != nil {
		return nil, nil, nil, err
	}
	var prompts [][]chat.Span
	var replies [][]int32
	for i := range shown {
		spans, err := s.continued(conversation, shown[:i], shown[i].view)
		if err != nil {
			return nil, nil, nil, err
		}
		prompts, replies = append(prompts, spans), append(replies, shown[i].reply)
	}
	spans, err := s.continued(conversation, shown, next)
	return conversation, append(prompts, spans), replies, err
}

func (s *seat) askSummary(next view) (bool, error) {
	first := s.first
	if w := s.player.rollout.Window; w > 0 {
		first = max(first, len(s.past)+1-w)
	}
	for ; first <= len(s.past); first++ {
		conversation, err := s.conversation()
		if err != nil {
			return false, err
		}
		messages := s.prompts.remember(s.game.rules, next, s.past, first, s.player.rollout.Memory)
		spans, err := conversation.Open(messages, s.prefix())
		if err != nil {
			return false, err
		}
		if s.fits(length(spans)) {
			s.first = first
			s.talk.restart(conversation, [][]chat.Span{spans}, nil)
			return true, nil
		}
		s.squeezed++
	}
	return false, nil
}

// conversation starts an empty one with the environment's tools.
func (s *seat) conversation() (*chat.Conversation, error) {
	conversation := s.player.tokenizer.NewConversation()
	return conversation, conversation.Offer(s.game.tools)
}

// remember gives the messages of a turn that sees the turns before as text: those from first on.
func (p prompts) remember(r rules, v view, turns []past, first int, memory string) []chat.Message {
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
			fmt.Fprintf(&s, "%s\n%s\n", turn.view.text(), said)
			continue
		}
		fmt.Fprintf(&s, "Turn %d\nState:\n%s\nReply: %s\nReward: %s\n\n", first+i+1, turn.view.text(), said, number(turn.reward))
	}
	messages := p.open(r, v)
	last := len(messages) - 1
	for ; last > 0 && messages[last].Role != "user"; last-- {
	}
	messages[last].Content = s.String() + messages[last].Content
	return messages
}
