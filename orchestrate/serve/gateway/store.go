package gateway

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"slices"
	"sync"
	"time"

	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/session"
	"gyre/orchestrate/serve/talk"
)

const (
	mostTurns  = 1024    // of a session without rules
	mostTokens = 4 << 20 // of a session
)

// Store has the sessions. It is safe for concurrent use.
type Store struct {
	tokenizer *chat.Tokenizer
	most      int           // sessions at a time
	idle      time.Duration // after which a session that nobody uses is forgotten
	url       string        // of the server, where programs are told of it; "" = as clients call it
	training  bool          // every session is an episode of a run

	mu       sync.Mutex // guards what follows, and the fields of sessions that say so
	sessions map[string]*Session
	keys     map[[sha256.Size]byte]*Session
	opened   int
	branches int // that forgotten sessions had beyond one each
}

// New is a store without sessions, which keeps so many at a time, and forgets those that nobody uses for a while.
func New(t *chat.Tokenizer, most int, idle time.Duration) *Store {
	return &Store{tokenizer: t, most: most, idle: idle, sessions: map[string]*Session{},
		keys: map[[sha256.Size]byte]*Session{}}
}

var errFull = serve.Refuse(http.StatusTooManyRequests,
	"as many sessions are open as may be, or as one address may have: post the rewards of some, or try again later")

// open starts a session for a client under rules, which may be those of nobody. One client may have half of the
// sessions; "" may have all.
func (s *Store) open(client string, rules rollout.Rules) (*Session, error) {
	rules.MaxTurns = cmp.Or(rules.MaxTurns, mostTurns)
	s.mu.Lock()
	defer s.mu.Unlock()
	if own := s.sweep(client); len(s.sessions) >= s.most || own >= s.share() {
		return nil, errFull
	}
	s.opened++
	n := &Session{store: s, number: s.opened, id: rand.Text(), key: "gyre-" + rand.Text(), client: client, rules: rules,
		used: time.Now(), history: session.New(s.tokenizer), posted: make(chan struct{})}
	s.sessions[n.id], s.keys[sha256.Sum256([]byte(n.key))] = n, n
	return n, nil
}

// mostClosed is how many sessions are kept once they are closed, for those who want to read them.
const mostClosed = 1024

// share is how many sessions one client may have.
func (s *Store) share() int { return (s.most + 1) / 2 }

// sweep forgets the sessions that nobody uses, and of those that are closed the oldest where there is no room for
// another of a client. It tells how many the client has. The caller holds the mutex.
func (s *Store) sweep(client string) (own int) {
	var closed []*Session
	for _, one := range s.sessions {
		switch state := one.state(); {
		case state.idle > s.idle:
			s.forget(one)
		case state.closed:
			closed = append(closed, one)
		}
	}
	for _, one := range s.sessions {
		if client != "" && one.client == client {
			own++
		}
	}
	slices.SortFunc(closed, func(a, b *Session) int { return a.state().since.Compare(b.state().since) })
	over := max(len(closed)-mostClosed, len(s.sessions)-s.most+1)
	for _, one := range closed {
		mine := client != "" && one.client == client
		if over > 0 || mine && own >= s.share() {
			s.forget(one)
			if over--; mine {
				own--
			}
		}
	}
	return own
}

func (s *Store) forget(one *Session) {
	s.branches += max(0, one.state().branches-1)
	delete(s.sessions, one.id)
	delete(s.keys, sha256.Sum256([]byte(one.key)))
}

// Knows tells whether a key is that of a session. What is looked up is its digest, so that the time it takes tells
// nothing of other keys.
func (s *Store) Knows(key string) bool { return s.byKey(key) != nil }

func (s *Store) byKey(key string) *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[sha256.Sum256([]byte(key))]
}

// find gives the session that a request names by its path, or else by its key; nil for none.
func (s *Store) find(r *http.Request) (*Session, error) {
	own, id := s.byKey(serve.Key(r)), r.PathValue("id")
	if id == "" {
		return own, nil
	}
	s.mu.Lock()
	named := s.sessions[id]
	s.mu.Unlock()
	switch {
	case named == nil:
		return nil, serve.Refuse(http.StatusNotFound, "there is no session %.80q (any more)", id)
	case own != nil && own != named:
		return nil, serve.Refuse(http.StatusForbidden, "the key is that of another session")
	}
	return named, nil
}

// Of is the session of a request, for package talk.
func (s *Store) Of(r *http.Request) (talk.Session, error) {
	found, err := s.find(r)
	switch {
	case err != nil:
		return nil, err
	case found != nil:
		return &call{session: found}, nil
	case s.training:
		return nil, serve.Refuse(http.StatusUnauthorized, "no session has this key: open one with POST /v1/sessions")
	}
	return nil, nil
}

var errNobody = serve.Refuse(http.StatusTooManyRequests, "no episode waits for a client now: try again later")

// claim gives an offered session to a client. Clients with the same label get the members of one group. Those of them
// that are not offered yet are waited for: another group is for another label.
func (s *Store) claim(label string) (*Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	type group struct {
		label   string
		claimed int
	}
	groups := map[int64]group{} // by their seeds
	var offered []*Session
	var newest *Session
	for _, one := range s.sessions {
		switch state := one.state(); {
		case state.offered:
			offered = append(offered, one)
		case state.claimed:
			groups[one.rules.Task.Seed] = group{state.label, groups[one.rules.Task.Seed].claimed + 1}
		}
		if newest == nil || one.number > newest.number {
			newest = one
		}
	}
	slices.SortFunc(offered, func(a, b *Session) int { return a.number - b.number })
	of := func(one *Session) group { return groups[one.rules.Task.Seed] }
	at := slices.IndexFunc(offered, func(one *Session) bool { return of(one).claimed > 0 && of(one).label == label })
	if at < 0 {
		for _, one := range s.sessions {
			rules, own := one.rules, of(one)
			now := rules.Batch == newest.rules.Batch && rules.Task.Stream == newest.rules.Task.Stream
			if now && label != "" && own.label == label && 0 < own.claimed && own.claimed < rules.Members {
				return nil, errNobody
			}
		}
		at = slices.IndexFunc(offered, func(one *Session) bool { return of(one).claimed == 0 })
	}
	if at < 0 {
		return nil, errNobody
	}
	offered[at].take(label)
	return offered[at], nil
}
