package serve

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"gyre/internal/nearest"
)

// guard is what happens to every request before and after its handler.
func (s *Server) guard(mux *http.ServeMux) http.Handler {
	sameSite := http.NewCrossOriginProtection()
	var numbers atomic.Uint64
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		control := http.NewResponseController(rw)
		w := &answer{ResponseWriter: rw, control: control, timeout: s.options.ReceiveTimeout}
		id := fmt.Sprintf("req-%d", numbers.Add(1))
		w.Header().Set(RequestID, id)
		w.Header().Set("Request-Id", id) // as Anthropic's clients read it
		for _, f := range s.errors {
			if f.For(r) {
				w.form = &f
			}
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		handler, pattern := mux.Handler(r)
		defer func() {
			if p := recover(); p != nil && p != http.ErrAbortHandler {
				s.log.Error("internal error", "id", id, "panic", p, "stack", string(debug.Stack()))
				if w.status == 0 {
					Fail(w, errors.New("internal error: see the server's log"))
				}
			}
			s.Metrics.count(pattern, w.status, time.Since(begun))
			s.log.Info("request", "id", id, "from", r.RemoteAddr, "method", r.Method, "path", r.URL.Path,
				"status", w.status, "bytes", w.sent, "seconds", time.Since(begun).Round(time.Microsecond).Seconds())
		}()
		whole := r.Body
		arrived := func() { s.connections.whole(r.Context()) }
		if r.Body != nil && r.ContentLength != 0 {
			// Fails where there is no connection: in tests.
			_ = control.SetReadDeadline(begun.Add(s.options.SendTimeout))
			r.Body = &body{ReadCloser: http.MaxBytesReader(rw, r.Body, s.options.MaxBody), control: control,
				arrived: arrived}
		} else {
			arrived()
		}
		public := slices.Contains(s.options.PublicPaths, r.URL.Path)
		switch err := sameSite.Check(r); {
		case err != nil || s.options.Key == "" && !s.local(r):
			Fail(w, Refuse(http.StatusForbidden, "a page of another site may not use this server"))
		case !public && !s.allowed(Key(r)):
			w.Header().Set("WWW-Authenticate", "Bearer")
			e := Refuse(http.StatusUnauthorized, "the API key is missing or wrong: send it as Authorization: Bearer "+
				"KEY or x-api-key: KEY")
			e.Code = new("invalid_api_key")
			Fail(w, e)
		case r.ContentLength > s.options.MaxBody:
			w.Header().Set("Connection", "close")
			// a client that is still sending would not read the answer
			_, _ = io.CopyN(io.Discard, whole, min(r.ContentLength, 2*s.options.MaxBody))
			Fail(w, Refuse(http.StatusRequestEntityTooLarge, "%s", tooLarge(s.options.MaxBody)))
		case !s.begin(Key(r)):
			Fail(w, Refuse(http.StatusTooManyRequests, "as many requests with this key are under way as may be"))
		case pattern == "":
			defer s.end(Key(r))
			s.unknown(w, r, handler)
		default:
			defer s.end(Key(r))
			mux.ServeHTTP(w, r)
		}
	})
}

// begin counts a request with a key, of which no more than half of the connections may have one under way.
func (s *Server) begin(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key != "" && s.underWay[key] >= max(1, s.options.MaxConnections/2) {
		return false
	}
	s.underWay[key]++
	return true
}

func (s *Server) end(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.underWay[key]--; s.underWay[key] == 0 {
		delete(s.underWay, key)
	}
}

// local tells whether a request names this machine: one that a foreign name was made to lead to does not.
func (s *Server) local(r *http.Request) bool {
	address, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		address = r.Host
	}
	address = strings.Trim(address, "[]")
	return Loopback(address) || net.ParseIP(address) != nil
}

// Key is the key that a request carries, as OpenAI's clients and as Anthropic's and Tinker's send it.
func Key(r *http.Request) string {
	if scheme, key, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "bearer") {
		return strings.TrimSpace(key)
	}
	return r.Header.Get("X-Api-Key")
}

// unknown answers a request that no pattern fits.
func (s *Server) unknown(w http.ResponseWriter, r *http.Request, fallback http.Handler) {
	plain := &statusOnly{header: http.Header{}}
	fallback.ServeHTTP(plain, r)
	if plain.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", plain.header.Get("Allow"))
		Fail(w, Refuse(plain.status, "%s does not take %s, but %s", r.URL.Path, r.Method, plain.header.Get("Allow")))
		return
	}
	var paths []string
	for _, p := range s.patterns {
		_, path, _ := strings.Cut(p, " ")
		paths = append(paths, path)
	}
	Fail(w, Refuse(http.StatusNotFound, "there is nothing at %.200q%s", r.URL.Path, nearest.Hint(r.URL.Path, paths)))
}

// statusOnly takes the status and the headers of an answer.
type statusOnly struct {
	header http.Header
	status int
}

func (s *statusOnly) Header() http.Header         { return s.header }
func (s *statusOnly) Write(b []byte) (int, error) { return len(b), nil }
func (s *statusOnly) WriteHeader(status int)      { s.status = status }

// answer notes what is sent, and gives the client a time to take it.
type answer struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	status  int
	sent    int64
	form    *ErrorForm // of errors; nil: OpenAI's
}

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	_ = a.control.SetWriteDeadline(time.Now().Add(a.timeout)) // fails where there is no connection: in tests
	n, err := a.ResponseWriter.Write(b)
	a.sent += int64(n)
	return n, err
}

// Flush sends what was written.
func (a *answer) Flush() { _ = a.control.Flush() } // the next Write says whether the client is there

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// body takes the deadline back once all of a request has been read: waiting for its answer has none.
type body struct {
	io.ReadCloser
	control *http.ResponseController
	arrived func() // is called when all of it has
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.control.SetReadDeadline(time.Time{}) // as above
		b.arrived()
	}
	return n, err
}
