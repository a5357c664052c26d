package endpoint

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"gyre/internal/quote"
)

// largestAnswer bounds what is read of a server's answer, in bytes.
const largestAnswer = 64 << 20

// client makes requests until they are answered. It may be used by several goroutines.
type client struct {
	http *http.Client
	base string // with /v1
	key  string
	// what names the model and the key, for messages
	modelFlag, keyFlag string
	patience           time.Duration // the least that an answer may take
	limit              time.Duration // the most
	tries              uint
	warn               func(format string, args ...any)

	mu      sync.Mutex // guards what follows
	slowest time.Duration
	retries map[string]int // by cause
	reached bool           // the server has answered, if only with an error
}

// baseOf completes a server's address: one without a path has its interface under /v1.
func baseOf(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf("endpoint %q is no address of a server: expected http://HOST:PORT or https://HOST/v1",
			address)
	}
	if u.Path = strings.TrimRight(u.Path, "/"); u.Path == "" {
		u.Path = "/v1"
	}
	return u.String(), nil
}

// newClient makes a client of a server, which it does not ask yet.
func newClient(c Config) (*client, error) {
	base, err := baseOf(c.URL)
	if err != nil {
		return nil, err
	}
	warn := c.Warn
	if warn == nil {
		warn = func(string, ...any) {}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = cmp.Or(c.Concurrency, 16)
	return &client{http: &http.Client{Transport: transport}, base: base, key: c.Key,
		modelFlag: cmp.Or(c.ModelFlag, "--served-model"), keyFlag: cmp.Or(c.KeyFlag, "--key-env"),
		patience: cmp.Or(c.Patience, 10*time.Second), limit: cmp.Or(c.Timeout, 10*time.Minute), tries: 12, warn: warn,
		retries: map[string]int{}}, nil
}

// findModel asks for the server's model where none was named.
func (c *client) findModel(ctx context.Context, name string) (string, error) {
	if name != "" {
		return name, nil
	}
	var list struct{ Data []struct{ ID string } }
	text, err := c.call(ctx, "/models", nil)
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		return "", fmt.Errorf("asking for the server's models (%s names one): %w", c.modelFlag, err)
	}
	if len(list.Data) != 1 {
		names := []string{}
		for _, m := range list.Data[:min(20, len(list.Data))] {
			names = append(names, m.ID)
		}
		return "", fmt.Errorf("%s has %d models: choose one with %s, of %q", c.base, len(list.Data), c.modelFlag, names)
	}
	return list.Data[0].ID, nil
}

// statusError is an answer that is no success.
type statusError struct {
	code    int
	says    string
	keyFlag string
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("the server answers %d %s: %s", e.code, http.StatusText(e.code), e.says)
	if e.code == http.StatusUnauthorized || e.code == http.StatusForbidden {
		text += " (" + e.keyFlag + " names the variable that holds the key)"
	}
	return text
}

// passes tells whether a request with such an answer is worth making again.
func (e *statusError) passes() bool {
	switch e.code {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return e.code >= 500 && e.code != http.StatusNotImplemented
}

// call makes a request until it is answered with JSON. body nil is a GET.
func (c *client) call(ctx context.Context, path string, body []byte) ([]byte, error) {
	late := 0 // times that the answer did not come in time
	delays := backoff.NewExponentialBackOff()
	delays.MaxInterval = 30 * time.Second
	answer, err := backoff.Retry(ctx, func() ([]byte, error) {
		within, cancel := context.WithTimeout(ctx, c.allowed(late))
		defer cancel()
		begun := time.Now()
		answer, wait, err := c.once(within, path, body)
		if err == nil {
			c.took(time.Since(begun))
			return answer, nil
		}
		cause, again := c.judge(ctx, within, err)
		if !again {
			return nil, backoff.Permanent(err)
		}
		if cause == "timeout" {
			late++
		}
		c.count(cause, err)
		if wait > 0 {
			return nil, fmt.Errorf("%w (%w)", err, &backoff.RetryAfterError{Duration: wait})
		}
		return nil, err
	}, backoff.WithBackOff(delays), backoff.WithMaxTries(c.tries), backoff.WithMaxElapsedTime(0))
	if err != nil {
		return nil, fmt.Errorf("%s%s: %w", c.base, path, err)
	}
	return answer, nil
}

// allowed is how long an answer may take whose request ran out of time so often.
func (c *client) allowed(late int) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	least := max(c.patience, 8*c.slowest)
	if c.slowest == 0 {
		least = 3 * c.patience // nothing is known yet
	}
	return min(c.limit, least<<min(late, 10))
}

func (c *client) took(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slowest, c.reached = max(c.slowest, d), true
}

// judge names the cause of a failure and tells whether it may pass.
func (c *client) judge(ctx, within context.Context, err error) (cause string, again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil {
		return "", false
	}
	if status, ok := errors.AsType[*statusError](err); ok {
		c.reached = true
		return strconv.Itoa(status.code), status.passes()
	}
	if within.Err() != nil {
		return "timeout", true
	}
	if _, dial := errors.AsType[*net.OpError](err); dial && !c.reached {
		return "", false // most likely nobody is there
	}
	return "connection", true
}

// count adds a retry; the first of each cause is worth a line.
func (c *client) count(cause string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.retries[cause]++; c.retries[cause] == 1 {
		c.warn("endpoint: %v: trying again (further ones of this kind are counted)", err)
	}
}

// once makes a request; wait is what the server says of the time until the next.
func (c *client) once(ctx context.Context, path string, body []byte) (text []byte, wait time.Duration, err error) {
	method, sent := http.MethodPost, io.Reader(bytes.NewReader(body))
	if body == nil {
		method, sent = http.MethodGet, nil
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, sent)
	if err != nil {
		return nil, 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "gyre")
	if c.key != "" {
		request.Header.Set("Authorization", "Bearer "+c.key)
	}
	response, err := c.http.Do(request)
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
			return nil, 0, errors.New("no answer in time")
		}
		return nil, 0, err
	}
	defer response.Body.Close()
	text, err = io.ReadAll(io.LimitReader(response.Body, largestAnswer))
	if err != nil {
		return nil, 0, fmt.Errorf("reading the answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		wait := retryAfter(response.Header.Get("Retry-After"))
		return nil, wait, &statusError{response.StatusCode, messageOf(text), c.keyFlag}
	}
	if !json.Valid(text) {
		return nil, 0, fmt.Errorf("the answer is no JSON: %s", quote.Text(string(text), 100))
	}
	return text, 0, nil
}

// retryAfter reads the header of that name: seconds or a date, at most an hour.
func retryAfter(value string) time.Duration {
	wait := time.Duration(0)
	if seconds, err := strconv.ParseFloat(value, 64); err == nil && seconds < 1e6 {
		wait = time.Duration(seconds * float64(time.Second))
	} else if at, err := http.ParseTime(value); err == nil {
		wait = time.Until(at)
	}
	return min(max(wait, 0), time.Hour)
}

// messageOf is what a server says of an error, in one line.
func messageOf(body []byte) string {
	var said struct {
		Error   json.RawMessage
		Message string
	}
	text := string(body)
	if json.Unmarshal(body, &said) == nil {
		var object struct{ Message string }
		if json.Unmarshal(said.Error, &object) == nil && object.Message != "" {
			text = object.Message
		} else if said.Message != "" {
			text = said.Message
		}
	}
	return quote.Text(text, 600)
}
