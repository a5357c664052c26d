package endpoint

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// answers is a server that gives these in turn, the last one again and again, and counts how often it was asked.
type answers struct {
	*httptest.Server
	list  []func(w http.ResponseWriter, r *http.Request)
	asked atomic.Int64
}

func serveAnswers(t *testing.T, list ...func(w http.ResponseWriter, r *http.Request)) *answers {
	t.Helper()
	a := &answers{list: list}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.list[min(int(a.asked.Add(1)), len(a.list))-1](w, r)
	}))
	t.Cleanup(a.Close)
	return a
}

func says(code int, body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "0.01")
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}
}

// hangs answers when the client has gone.
func hangs(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.ReadAll(r.Body) // only then is the end of the connection noticed
	<-r.Context().Done()
}

func clientOf(t *testing.T, c Config) *client {
	t.Helper()
	made, err := newClient(c)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"http://localhost:8000":      "http://localhost:8000/v1",
		"http://localhost:8000/":     "http://localhost:8000/v1",
		"https://example.org/api/v2": "https://example.org/api/v2",
		"localhost:8000":             "",
		"ftp://example.org":          "",
		"":                           "",
	} {
		if got, err := baseOf(address); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", address, got, err, want)
		}
	}
}

func TestRequestsAreMadeAgain(t *testing.T) {
	s := serveAnswers(t, says(503, `{"error": {"message": "overloaded"}}`), says(503, ""), says(429, "slow down"),
		says(200, `{"choices": [`), says(200, `{"n": 1}`))
	var warned []string
	c := clientOf(t, Config{URL: s.URL, Warn: func(format string, args ...any) {
		warned = append(warned, fmt.Sprintf(format, args...))
	}})
	text, err := c.call(t.Context(), "/x", []byte("{}"))
	if err != nil || string(text) != `{"n": 1}` || s.asked.Load() != 5 {
		t.Errorf("%s, %v after %d requests", text, err, s.asked.Load())
	}
	if want := map[string]int{"503": 2, "429": 1, "connection": 1}; !maps.Equal(c.retries, want) {
		t.Errorf("made again: %v, want %v", c.retries, want)
	}
	if len(warned) != 3 || !strings.Contains(warned[0], "503 Service Unavailable: \"overloaded\"") {
		t.Errorf("one warning for each cause: %q", warned)
	}
}

func TestRequestsThatAreNotMadeAgain(t *testing.T) {
	for code, want := range map[int]string{400: "400 Bad Request: \"no\"", 401: "401 Unauthorized: \"no\" (--key-env names",
		404: "404 Not Found: \"no\"", 501: "501 Not Implemented: \"no\""} {
		s := serveAnswers(t, says(code, `{"error": {"message": "no"}}`))
		c := clientOf(t, Config{URL: s.URL})
		if _, err := c.call(t.Context(), "/x", nil); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), s.URL+"/v1/x") || s.asked.Load() != 1 {
			t.Errorf("%d: %v after %d requests, want one with %q", code, err, s.asked.Load(), want)
		}
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	begun := time.Now()
	c := clientOf(t, Config{URL: gone.URL})
	if _, err := c.call(t.Context(), "/x", nil); err == nil || len(c.retries) > 0 || time.Since(begun) > 10*time.Second {
		t.Errorf("nobody there: %v, %v after %v", err, c.retries, time.Since(begun))
	}
}

// A request whose time has run out is made again, and the end of the context ends the attempts.
func TestServersThatHang(t *testing.T) {
	s := serveAnswers(t, hangs, says(200, "[]"))
	c := clientOf(t, Config{URL: s.URL, Patience: 50 * time.Millisecond})
	if text, err := c.call(t.Context(), "/x", []byte("{}")); err != nil || string(text) != "[]" ||
		!maps.Equal(c.retries, map[string]int{"timeout": 1}) {
		t.Errorf("%s, %v, made again: %v", text, err, c.retries)
	}
	s = serveAnswers(t, hangs)
	c = clientOf(t, Config{URL: s.URL})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.call(ctx, "/x", []byte("{}")); err == nil || len(c.retries) > 0 {
		t.Errorf("%v, made again: %v", err, c.retries)
	}
}

// An answer may take eight times the slowest so far, three times the patience before the first, and twice as long after
// each time that it was late.
func TestPatience(t *testing.T) {
	c := clientOf(t, Config{URL: "http://x", Patience: time.Second, Timeout: time.Minute})
	check := func(late int, want time.Duration) {
		t.Helper()
		if got := c.allowed(late); got != want {
			t.Errorf("late %d times: %v, want %v", late, got, want)
		}
	}
	check(0, 3*time.Second)
	check(2, 12*time.Second)
	c.took(10 * time.Millisecond)
	check(0, time.Second)
	c.took(2 * time.Second)
	c.took(time.Second)
	check(0, 16*time.Second)
	check(1, 32*time.Second)
	check(30, time.Minute)
}

func TestRetryAfter(t *testing.T) {
	for value, want := range map[string]time.Duration{"": 0, "2": 2 * time.Second, "0.5": 500 * time.Millisecond,
		"-3": 0, "soon": 0, "999999": time.Hour, "Thu, 01 Jan 1970 00:00:00 GMT": 0} {
		if got := retryAfter(value); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
	in := retryAfter(time.Now().Add(time.Minute).UTC().Format(http.TimeFormat))
	if in < 50*time.Second || in > time.Minute {
		t.Errorf("a date in a minute: %v", in)
	}
}

func TestMessages(t *testing.T) {
	for body, want := range map[string]string{
		`{"error": {"message": "a"}}`:          `"a"`,
		`{"message": "b"}`:                     `"b"`,
		`{"error": "c"}`:                       `"{\"error\": \"c\"}"`,
		"plain\x1b[2J":                         `"plain\x1b[2J"`,
		`{"error": {"message": "two\nlines"}}`: `"two\nlines"`,
	} {
		if got := messageOf([]byte(body)); got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
}

func TestTheModelOfAServer(t *testing.T) {
	for body, want := range map[string]string{
		`{"data": [{"id": "one"}]}`:                "one",
		`{"data": [{"id": "one"}, {"id": "two"}]}`: `has 2 models: choose one with --served-model, of ["one" "two"]`,
		`{"data": []}`:                             "has 0 models",
		`3`:                                        "asking for the server's models",
	} {
		s := serveAnswers(t, says(200, body))
		c := clientOf(t, Config{URL: s.URL})
		name, err := c.findModel(t.Context(), "")
		if name != want && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %q, %v; want %q", body, name, err, want)
		}
		if name, err := c.findModel(t.Context(), "given"); name != "given" || err != nil || s.asked.Load() != 1 {
			t.Errorf("a name that is given: %q, %v after %d requests", name, err, s.asked.Load())
		}
	}
}
