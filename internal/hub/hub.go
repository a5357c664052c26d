// Package hub downloads files from a Hugging Face hub, or a mirror of one, over its plain HTTP interface. Interrupted
// downloads go on where they stopped; what the hub says of a file is checked before the file gets its name.
package hub

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// Hub is where models and data sets come from.
type Hub struct {
	Endpoint string // "https://huggingface.co"
	Token    string // access token for what is gated; "" = none
	Client   *http.Client
}

// FromEnvironment is the hub that HF_ENDPOINT and HF_TOKEN name, the public one by default. A transfer may take any
// time, the wait for an answer a minute.
func FromEnvironment() Hub {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = time.Minute
	endpoint := cmp.Or(os.Getenv("HF_ENDPOINT"), "https://huggingface.co")
	return Hub{strings.TrimRight(endpoint, "/"), os.Getenv("HF_TOKEN"), &http.Client{Transport: transport}}
}

// File is what a hub says of a file. Size is -1 and SHA256 is "" where it does not say.
type File struct {
	Name   string
	Size   int64
	SHA256 string
}

// Progress reports bytes of a file: those on disk so far, and the total (-1 when unknown).
type Progress func(name string, done, total int64)

// Unreachable completes an error of the network by what else can be done; other errors stay as they are.
func (h Hub) Unreachable(err error, instead string) error {
	if _, ok := errors.AsType[*url.Error](err); !ok || errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("no way to the hub %s: %w\nHF_ENDPOINT names another hub. Without one: %s", h.Endpoint, err,
		instead)
}

// Get requests a path of the hub from byte `from` on, and says from which byte on the answer is: 0 where the server
// does not send parts of files. The caller closes the body.
func (h Hub) Get(ctx context.Context, path string, from int64) (body io.ReadCloser, at int64, err error) {
	address := h.Endpoint + "/" + path
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, 0, err
	}
	request.Header.Set("User-Agent", "gyre")
	if h.Token != "" {
		request.Header.Set("Authorization", "Bearer "+h.Token)
	}
	if from > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	answer, err := h.Client.Do(request)
	if err != nil {
		return nil, 0, err
	}
	switch answer.StatusCode {
	case http.StatusOK:
		return answer.Body, 0, nil
	case http.StatusPartialContent:
		return answer.Body, from, nil
	}
	answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusRequestedRangeNotSatisfiable:
		return h.Get(ctx, path, 0)
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, 0, fmt.Errorf("%s: %s: it does not exist, is private or asks for consent (set HF_TOKEN to a token "+
			"that may read it)", address, answer.Status)
	}
	return nil, 0, fmt.Errorf("%s: %s", address, answer.Status)
}

// attempts is how often a download is taken up again after the connection broke; retryDelay grows with every one.
const attempts = 5

var retryDelay = time.Second

// Fetch downloads a path of the hub to target, unless it is there already. What an interrupted call has downloaded is
// in TARGET.part, from where the next one goes on.
func (h Hub) Fetch(ctx context.Context, path, target string, f File, progress Progress) error {
	if _, err := os.Stat(target); err == nil {
		return nil // it got its name after the check
	}
	part := target + ".part"
	out, err := os.OpenFile(part, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	for attempt := 1; ; attempt++ {
		broken, err := h.resume(ctx, path, out, f, progress)
		if err == nil {
			break
		}
		if !broken || attempt == attempts || ctx.Err() != nil {
			if info, unknown := out.Stat(); unknown == nil && info.Size() == 0 {
				err = errors.Join(err, os.Remove(part))
			}
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(attempt) * retryDelay):
		}
	}
	if err := f.check(out); err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return os.Rename(part, target)
}

// resume fetches what is missing of a file; broken says that the connection failed, so that trying once more may help.
func (h Hub) resume(ctx context.Context, path string, out *os.File, f File, progress Progress) (broken bool,
	err error) {
	have, err := out.Seek(0, io.SeekEnd)
	if err != nil || have > 0 && have == f.Size {
		return false, err
	}
	body, at, err := h.Get(ctx, path, have)
	if err != nil {
		_, broken = errors.AsType[*url.Error](err)
		dial, ok := errors.AsType[*net.OpError](err)
		return broken && !(ok && dial.Op == "dial" && have == 0), err // nobody is there: waiting helps nobody
	}
	defer body.Close()
	if _, err := out.Seek(at, io.SeekStart); err != nil {
		return false, err
	}
	if err := out.Truncate(at); err != nil {
		return false, err
	}
	_, err = io.Copy(&counter{out, at, func(done int64) { progress(f.Name, done, f.Size) }}, body)
	_, local := errors.AsType[*fs.PathError](err)
	return err != nil && !local, err
}

// counter reports what it writes.
type counter struct {
	io.Writer
	done   int64
	report func(done int64)
}

// Write has the signature of io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.done += int64(n)
	c.report(c.done)
	return n, err
}

// check compares what was downloaded with what the hub said of it.
func (f File) check(in *os.File) error {
	h := sha256.New()
	n, err := io.Copy(h, io.NewSectionReader(in, 0, 1<<62))
	if err != nil {
		return err
	}
	if f.Size >= 0 && n != f.Size {
		return fmt.Errorf("downloaded %d bytes, the hub announced %d", n, f.Size)
	}
	if got := hex.EncodeToString(h.Sum(nil)); f.SHA256 != "" && got != f.SHA256 {
		return fmt.Errorf("SHA-256 is %s, the hub announced %s", got, f.SHA256)
	}
	return nil
}

// Lines reports on a log: a line when a file begins, every few seconds, and when it is complete.
func Lines(w io.Writer) Progress {
	const interval = 5 * time.Second
	current, last := "", time.Time{}
	return func(name string, done, total int64) {
		if name == current && done != total && time.Since(last) < interval {
			return
		}
		current, last = name, time.Now()
		if total > 0 {
			fmt.Fprintf(w, "%s  %.1f of %.1f MB\n", name, float64(done)/1e6, float64(total)/1e6)
		} else {
			fmt.Fprintf(w, "%s  %.1f MB\n", name, float64(done)/1e6)
		}
	}
}
