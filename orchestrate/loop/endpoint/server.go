// Package endpoint lets a server with OpenAI's interface answer in the place of this process's engine, so that episodes
// are played with any model that somebody serves.
//
//	server, err := endpoint.Open(ctx, endpoint.Config{URL: "http://localhost:8000"}, tokenizer)
//	player.Ask(server)
//
// A server that shows that its tokens are those of the tokenizer (it returns prompt_token_ids, as vLLM and `gyre serve`
// do, and they are what the chat template gives here) gets the prompts as token ids and returns ids: its replies are
// what the engine would have sampled, token for token. Any other server gets messages and returns text. Such a reply
// need not begin with the block that the engine's replies are made to begin with, its tokens are counted by the server,
// and its log-probs are not known.
//
// A [Teacher] is asked for the log-probs of given tokens instead.
//
// A request that fails in a way that may pass (408, 409, 425, 429, 5xx, a broken connection, no answer in time) is made
// again, after Retry-After where the server says so. How long an answer may take follows from the slowest so far, and
// doubles for a request whose time ran out, so that a server that hangs costs little and a slow reply is never cut.
package endpoint

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gyre/orchestrate/loop/generation"
	"gyre/orchestrate/model/chat"
	"gyre/torch"
)

// Config says where a server is and how it is asked. Zero values are the defaults.
type Config struct {
	URL         string
	Model       string        // that the server is asked for; "" = the only one it lists
	Key         string        // sent as a bearer token
	Concurrency int           // requests at once; 0 = 16
	Timeout     time.Duration // the most that an answer may take; 0 = 10 minutes
	Patience    time.Duration // the least that an answer is given before it is asked for again; 0 = 10 seconds
	Journal     string        // file that replies are kept in, to go on from; "" = none
	Warn        func(format string, args ...any)
	// Flags are what names the model and the key's variable, for messages; "" = those of the command line.
	ModelFlag, KeyFlag string
}

// Server is a [generation.Source]. Its methods are for one goroutine.
type Server struct {
	Model string
	// Exact tells whether the server takes and returns token ids that are this tokenizer's.
	Exact bool

	client    *client
	tokenizer *chat.Tokenizer
	journal   *journal
	newName   atomic.Bool // it wants max_completion_tokens

	slots   chan struct{} // one for each request at once
	done    chan answered
	running sync.WaitGroup
	cancel  context.CancelFunc // of the requests that run
	ctx     context.Context
	usage   Usage
}

// answered is a request's end.
type answered struct {
	id    uint64
	key   string
	stops []string
	chat  generation.Chat
	reply reply
	kept  bool
	err   error
}

// Open finds out what a server can do.
func Open(ctx context.Context, c Config, tokenizer *chat.Tokenizer) (*Server, error) {
	client, err := newClient(c)
	if err != nil {
		return nil, err
	}
	most := cmp.Or(c.Concurrency, 16)
	s := &Server{tokenizer: tokenizer, slots: make(chan struct{}, most), done: make(chan answered, most),
		client: client}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if s.journal, err = openJournal(c.Journal); err != nil {
		return nil, err
	}
	if s.Model, err = client.findModel(ctx, c.Model); err == nil {
		err = s.probe(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close ends what runs. What was answered is kept.
func (s *Server) Close() error {
	err := s.Release()
	s.cancel()
	s.client.http.CloseIdleConnections()
	return errors.Join(err, s.journal.close())
}

// probe finds out whether the server's tokens are ours. What it does not know it may refuse.
func (s *Server) probe(ctx context.Context) error {
	messages := []chat.Message{{Role: "system", Content: "Answer."}, {Role: "user", Content: "One, 2, <end>?"}}
	ids, err := s.tokenizer.EncodeMessages(messages, true)
	if err != nil {
		return err
	}
	ask := request{Model: s.Model, Messages: spoken(messages), MaxTokens: 1, Temperature: 1, TopP: 1,
		ReturnTokenIDs: true}
	reply, err := s.ask(ctx, "/chat/completions", ask)
	if refuses(err) {
		return nil // the first prompt shows whether it takes plain requests
	}
	if err != nil || !slices.Equal(reply.PromptTokenIDs, ids) {
		return err
	}
	ask.Messages, ask.Prompt = nil, ids
	reply, err = s.ask(ctx, "/completions", ask)
	s.Exact = err == nil && len(reply.Choices) == 1 && len(reply.Choices[0].TokenIDs) > 0
	return ctx.Err()
}

// ask makes a request, under the name that the server has for the limit of tokens.
func (s *Server) ask(ctx context.Context, path string, r request) (answer reply, err error) {
	for {
		if s.newName.Load() {
			r.MaxCompletionTokens, r.MaxTokens = r.MaxTokens+r.MaxCompletionTokens, 0
		}
		body, err := json.Marshal(r)
		if err != nil {
			return reply{}, err
		}
		text, err := s.client.call(ctx, path, body)
		if err == nil {
			if err = json.Unmarshal(text, &answer); err != nil {
				err = fmt.Errorf("%s%s: the answer: %w", s.client.base, path, err)
			}
		}
		status, refused := errors.AsType[*statusError](err)
		if refused && status.code == http.StatusBadRequest && r.MaxTokens > 0 &&
			strings.Contains(status.says, "max_completion_tokens") {
			s.newName.Store(true)
			continue
		}
		return answer, err
	}
}

// Submit asks for a reply, or takes it from those that were kept.
func (s *Server) Submit(r generation.Request) error {
	said := generation.Chat{}
	path, ask := "/completions", s.exactly(r)
	if !s.Exact {
		said = r.Chat()
		path, ask = "/chat/completions", s.inText(r, said)
	}
	key, err := keyOf(r, ask)
	if err != nil {
		return err
	}
	a := answered{id: r.ID, key: key, stops: r.StopStrings, chat: said}
	ctx := s.ctx
	if kept, ok := s.journal.find(key); ok {
		a.reply, a.kept = kept, true
	}
	s.running.Go(func() {
		if !a.kept {
			select {
			case s.slots <- struct{}{}:
				a.reply, a.err = s.ask(ctx, path, ask)
				<-s.slots
			case <-ctx.Done():
				return
			}
		}
		select {
		case s.done <- a:
		case <-ctx.Done():
		}
	})
	return nil
}

// moment is how long Step waits for a reply: environments may have more to ask for meanwhile.
const moment = 5 * time.Millisecond

// Step returns the replies that have come.
func (s *Server) Step() (out []torch.Output, err error) {
	expired := time.After(moment)
	for len(out) == 0 || len(s.done) > 0 && len(out) < cap(s.done) {
		select {
		case a := <-s.done:
			one, err := s.take(a)
			if err != nil {
				return nil, err
			}
			out = append(out, one)
		case <-expired:
			return out, nil
		}
	}
	return out, nil
}

// take makes an output of an answer, and keeps it.
func (s *Server) take(a answered) (torch.Output, error) {
	if a.err != nil {
		return torch.Output{}, fmt.Errorf("%w. What was played is kept: the same command goes on from here", a.err)
	}
	if len(a.reply.Choices) != 1 {
		return torch.Output{}, fmt.Errorf("%s: %d choices in an answer, expected 1", s.client.base,
			len(a.reply.Choices))
	}
	if !a.kept {
		if err := s.journal.add(a.key, a.reply); err != nil {
			return torch.Output{}, err
		}
	}
	out := torch.Output{ID: a.id, Finish: torch.FinishStop}
	choice := a.reply.Choices[0]
	if choice.FinishReason == "length" {
		out.Finish = torch.FinishLength
	}
	var err error
	if s.Exact {
		out.Tokens, err = s.idsOf(choice)
	} else {
		out.Tokens, err = s.encode(choice, a)
	}
	out.CachedTokens = a.reply.Usage.Details.Cached
	s.usage.add(a.reply.Usage, a.kept)
	return out, err
}

// Release gives up what is being asked for. More may be asked for afterwards.
func (s *Server) Release() error {
	s.cancel()
	s.running.Wait()
	for len(s.done) > 0 {
		<-s.done
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return nil
}

// TensorParallel runs run: a server has one process to do with.
func (s *Server) TensorParallel(_ context.Context, run func() error) error { return run() }

// Follows is false.
func (s *Server) Follows() bool { return false }

// Usage is what was asked for so far.
func (s *Server) Usage() Usage {
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	u := s.usage
	u.Retries = maps.Clone(s.client.retries)
	return u
}
