package gateway

import (
	"net/http"
	"sync"
	"time"

	"gyre/envs"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/host"
	"gyre/orchestrate/serve/session"
	"gyre/torch"
)

// Session is a conversation with a client, which ends with a reward.
type Session struct {
	store   *Store
	number  int // in the order in which sessions were opened
	id, key string
	client  string // the address that opened it; "" in training
	rules   rollout.Rules
	posted  chan struct{} // closed with over

	mu       sync.Mutex // guards what follows
	history  *session.History
	used     time.Time
	asked    int  // replies that were asked for
	refused  int  // calls beyond the turns that there may be
	unseen   bool // tools were offered that the chat template does not show
	verdicts []envs.Verdict
	over     bool // nobody goes on: the reward was posted, or too many calls were refused
	closed   bool // what was said is final
	offered  bool
	claimed  bool
	label    string // of its group, as the client that claimed it has it
}

// mostRefused is how many calls beyond its turns a client may make before its conversation is ended.
const mostRefused = 8

// state is what the store looks at.
type state struct {
	idle                     time.Duration
	since                    time.Time
	closed, offered, claimed bool
	label                    string
	branches                 int
}

func (s *Session) state() state {
	s.mu.Lock()
	defer s.mu.Unlock()
	idle := time.Since(s.used)
	if s.store.training && !s.closed { // a run closes its sessions itself
		idle = 0
	}
	return state{idle, s.used, s.closed, s.offered, s.claimed, s.label, len(s.history.Paths())}
}

// call is one request of a session. It implements talk.Session.
type call struct {
	session *Session
	prompt  *session.Prompt
}

// Prompt gives the ids that these messages are answered on.
func (c *call) Prompt(messages []chat.Message, offered chat.Offer) (ids []int32, err error) {
	s := c.session
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = time.Now()
	switch {
	case s.closed || s.over:
		return nil, serve.Refuse(http.StatusConflict, "the session is closed")
	case s.asked >= s.rules.MaxTurns:
		if s.refused++; s.refused > mostRefused {
			s.end()
		}
		e := serve.Bad("", "the session has had its %d turns: post its reward", s.rules.MaxTurns)
		e.Code = new("max_turns")
		return nil, e
	case s.history.Tokens() >= mostTokens:
		return nil, serve.Bad("", "the session has %d tokens, which is the most that it may have", s.history.Tokens())
	}
	if c.prompt, err = s.history.Prompt(messages, offered); err != nil {
		return nil, err
	}
	s.unseen = s.unseen || len(offered.Tools) > 0 && !s.store.tokenizer.ShowsTools()
	return c.prompt.IDs, nil
}

// Sample sets how the replies to a prompt are drawn.
func (c *call) Sample(requests []host.Request) {
	s := c.session
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range requests {
		if of := &requests[i].Sampling; s.rules.Sampling != nil {
			asked := *of
			*of = s.rules.Sampling(s.asked)
			if asked.MaxTokens > 0 {
				of.MaxTokens = min(of.MaxTokens, asked.MaxTokens)
			}
			of.Alternatives = asked.Alternatives
		}
		s.asked++
	}
}

// Replied keeps a reply. One that comes after the end counts for nothing.
func (c *call) Replied(_ []int32, reply torch.Output, said chat.Message) {
	s := c.session
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = time.Now()
	if s.closed || s.over || c.prompt == nil || reply.Finish == torch.FinishAbort {
		return
	}
	if _, err := c.prompt.Reply(reply.Tokens, reply.Logprobs, said); err != nil {
		s.end() // the engine never gives a reply without log-probs
	}
}

// end ends the conversation. The caller holds the mutex.
func (s *Session) end() {
	if !s.over {
		s.over = true
		close(s.posted)
	}
}

// reward takes a verdict. One on the whole conversation ends it.
func (s *Session) reward(v envs.Verdict) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = time.Now()
	switch turns := s.history.Turns(); {
	case s.closed || s.over:
		return serve.Refuse(http.StatusConflict, "the session is closed: it has its reward")
	case v.Turn != nil && *v.Turn >= turns:
		return serve.Bad("turn", "turn is %d, but the session has had %d turns, counted from 0", *v.Turn, turns)
	case len(s.verdicts) > mostTurns:
		return serve.Refuse(http.StatusConflict, "the session has had %d rewards, which is the most that it may have",
			len(s.verdicts))
	}
	s.verdicts = append(s.verdicts, v)
	if v.Turn == nil {
		s.end()
		s.closed = !s.store.training // there, the run closes it
	}
	return nil
}

// take gives an offered session to a client.
func (s *Session) take(label string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offered, s.claimed, s.label, s.used = false, true, label, time.Now()
}

// BaseURL is where the session's client finds OpenAI's API.
func (s *Session) BaseURL() string { return s.store.url + "/v1/sessions/" + s.id }

// Key is the session's own.
func (s *Session) Key() string { return s.key }

// Posted is closed when the conversation is over.
func (s *Session) Posted() <-chan struct{} { return s.posted }

// Offer gives the session to the next client that asks for one.
func (s *Session) Offer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offered = true
}

// Close ends the session and gives what was said.
func (s *Session) Close() rollout.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.offered = true, false
	r := rollout.Record{Verdicts: s.verdicts, UsedTurns: s.refused > 0, Unseen: s.unseen}
	for _, path := range s.history.Paths() {
		var said []rollout.Said
		for _, t := range path {
			said = append(said, rollout.Said{Number: t.Number, Prompt: t.Prompt, Reply: t.Reply, Logprobs: t.Logprobs})
		}
		r.Paths = append(r.Paths, said)
	}
	return r
}
