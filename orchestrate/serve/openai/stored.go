package openai

import (
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"slices"
	"sync"

	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/serve"
)

// The newest responses are kept, so many of them and so many bytes of their conversations.
const (
	mostStored      = 4096
	mostStoredBytes = 256 << 20
)

// storedResponses are those that clients may go on from or read again. They are safe for concurrent use.
type storedResponses struct {
	mu    sync.Mutex // guards what follows
	list  []storedResponse
	bytes int
}

// storedResponse belongs to whoever has the key that it was asked for with.
type storedResponse struct {
	id       string
	owner    [sha256.Size]byte
	messages []chat.Message // the conversation with the answer, without instructions
	answer   object
	bytes    int
}

func ownerOf(r *http.Request) [sha256.Size]byte { return sha256.Sum256([]byte(serve.Key(r))) }

// add keeps a response, and forgets the oldest ones that there is no room for.
func (s *storedResponses) add(one storedResponse) {
	data, _ := json.Marshal(one.messages) // which came as JSON
	one.bytes = len(data)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list, s.bytes = append(s.list, one), s.bytes+one.bytes
	for len(s.list) > mostStored || s.bytes > mostStoredBytes {
		s.remove(0)
	}
}

// remove forgets a response. The caller holds the mutex.
func (s *storedResponses) remove(i int) {
	s.bytes -= s.list[i].bytes
	s.list = slices.Delete(s.list, i, i+1)
}

// find gives a response to its owner, and forgets it if it is asked to.
func (s *storedResponses) find(r *http.Request, id string, forget bool) (one storedResponse, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	owner := ownerOf(r)
	i := slices.IndexFunc(s.list, func(one storedResponse) bool { return one.id == id && one.owner == owner })
	if i < 0 {
		return one, false
	}
	one = s.list[i]
	if forget {
		s.remove(i)
	}
	return one, true
}

const notStored = "no response %.80q is stored (any more): the server keeps the newest, until it ends"

// Response answers GET and DELETE /v1/responses/{response}.
func (a *API) Response(r *http.Request, _ struct{}) (any, error) {
	id, forget := r.PathValue("response"), r.Method == http.MethodDelete
	one, found := a.stored.find(r, id, forget)
	switch {
	case !found:
		return nil, serve.Refuse(http.StatusNotFound, notStored, id)
	case forget:
		return object{"id": id, "object": "response", "deleted": true}, nil
	}
	return one.answer, nil
}

// before is what was said up to a response.
func (a *API) before(r *http.Request, id string) ([]chat.Message, error) {
	if id == "" {
		return nil, nil
	}
	one, found := a.stored.find(r, id, false)
	if !found {
		err := serve.Bad("previous_response_id", "previous_response_id: "+notStored+": send the conversation whole", id)
		err.Code = new("previous_response_not_found")
		return nil, err
	}
	return one.messages, nil
}
