package talk

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/host"
	"gyre/torch"
)

// Sessions finds the session that a request belongs to, by its key or its path; nil for none.
type Sessions func(r *http.Request) (Session, error)

// Session keeps the tokens of a conversation. Its methods are called by the goroutines of requests.
type Session interface {
	// Prompt gives the ids that these messages are answered on.
	Prompt(messages []chat.Message, offered chat.Offer) ([]int32, error)
	// Sample may change how the replies to a prompt are drawn.
	Sample(requests []host.Request)
	// Replied is told each complete reply to a prompt that Prompt gave, and the message that the client gets of it.
	Replied(prompt []int32, reply torch.Output, message chat.Message)
}

// Talks are the conversations of an API.
type Talks struct {
	Host     *host.Host
	metrics  *serve.Metrics
	sessions Sessions
	calls    string // what the ids of calls begin with
	numbers  atomic.Uint64
}

// New is for an API that is mounted on a server. sessions may be nil.
func New(s *serve.Server, sessions Sessions, calls string) *Talks {
	return &Talks{Host: s.Host, metrics: s.Metrics, sessions: sessions, calls: calls}
}

// ID names an answer.
func (t *Talks) ID(kind string) string {
	return fmt.Sprintf("%s-%x-%d", kind, t.Host.Model().Opened.UnixNano(), t.numbers.Add(1))
}

// Session is that of a request; nil for none.
func (t *Talks) Session(r *http.Request) (Session, error) {
	if t.sessions == nil {
		return nil, nil
	}
	return t.sessions(r)
}

// maxMessages bounds a chat: templates take time that grows faster than their number.
const maxMessages = 4096

var roles = []string{"system", "developer", "user", "assistant", "tool"}

// Check are a request's messages as templates know them.
func Check(list []chat.Message) ([]chat.Message, error) {
	if n := len(list); n == 0 || n > maxMessages {
		return nil, serve.Bad("messages", "there are %d messages, expected 1 to %d", n, maxMessages)
	}
	for i, m := range list {
		if !slices.Contains(roles, m.Role) {
			return nil, serve.Bad("messages", "message %d has the role %.40q, expected system, developer, user, "+
				"assistant or tool", i, m.Role)
		}
	}
	return chat.ForTemplates(list), nil
}

// Encode turns messages, as a request has them, into the ids of their prompt. session may be nil.
func (t *Talks) Encode(session Session, list []chat.Message, o chat.Offer) (ids []int32, err error) {
	messages, err := Check(list)
	if err != nil {
		return nil, err
	}
	bytes := 0
	for _, m := range messages {
		bytes += len(m.Content)
		for _, raw := range m.Fields {
			bytes += len(raw)
		}
	}
	if err := t.Host.CheckText(bytes); err != nil {
		return nil, err
	}
	switch {
	case session != nil:
		ids, err = session.Prompt(messages, o)
	default:
		ids, err = t.Host.Tokenizer().EncodeMessages(messages, true, o)
	}
	if err != nil && !errors.As(err, new(*serve.Error)) {
		where := filepath.Dir(t.Host.Tokenizer().Path) + string(filepath.Separator) // of the template: the server's matter
		param := "messages"
		if errors.As(err, new(chat.VariableError)) {
			param = "chat_template_kwargs"
		}
		err = serve.Bad(param, "%s", strings.ReplaceAll(err.Error(), where, ""))
	}
	return ids, err
}
