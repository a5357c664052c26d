package pull

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"time"
)

// attempts is how often a file's download is taken up again after the connection broke.
const attempts = 5

// download completes path, going on where an earlier attempt stopped, and checks it. A finished file is only checked.
func (h Hub) download(ctx context.Context, address, path string, f file, progress Progress) error {
	part := path + ".part"
	if _, err := os.Stat(path); err == nil {
		return nil // it got its name after the check
	}
	var err error
	for attempt := range attempts {
		if attempt > 0 {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(time.Duration(attempt) * retryDelay):
			}
		}
		var again bool
		if again, err = h.append(ctx, address, part, f, progress); !again {
			break
		}
	}
	if err != nil {
		return err
	}
	if err := check(part, f); err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return os.Rename(part, path)
}

// retryDelay grows with every attempt.
var retryDelay = time.Second

// append fetches what is missing of a file; again says that trying once more may help.
func (h Hub) append(ctx context.Context, address, part string, f file, progress Progress) (again bool, err error) {
	out, err := os.OpenFile(part, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	have, err := out.Seek(0, io.SeekEnd)
	if err != nil || have > 0 && have == f.size {
		return false, err
	}
	if f.size >= 0 && have > f.size {
		have = 0
	}
	body, at, err := h.get(ctx, address, have)
	if err != nil {
		return ctx.Err() == nil && isNetwork(err), err
	}
	defer body.Close()
	if err := out.Truncate(at); err != nil {
		return false, err
	}
	if _, err := out.Seek(at, io.SeekStart); err != nil {
		return false, err
	}
	source := io.Reader(body)
	if f.size >= 0 {
		source = io.LimitReader(body, f.size-at+1) // one more shows that the file is longer than announced
	}
	w := &counter{Writer: out, done: at, report: func(done int64) { progress(f.name, done, f.size) }}
	if _, err := io.Copy(w, source); err != nil {
		return ctx.Err() == nil && w.err == nil, err
	}
	return false, nil
}

func isNetwork(err error) bool {
	var problem *url.Error
	return errors.As(err, &problem)
}

// counter reports what it writes, and keeps an error of the file apart from those of the network.
type counter struct {
	io.Writer
	done   int64
	err    error
	report func(done int64)
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.done += int64(n)
	c.err = err
	c.report(c.done)
	return n, err
}

// check compares a file with what the hub said of it.
func check(path string, f file) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	h := sha256.New()
	n, err := io.Copy(h, in)
	if err != nil {
		return err
	}
	if f.size >= 0 && n != f.size {
		return fmt.Errorf("downloaded %d bytes, the hub announced %d", n, f.size)
	}
	if got := hex.EncodeToString(h.Sum(nil)); f.sha256 != "" && got != f.sha256 {
		return fmt.Errorf("SHA-256 is %s, the hub announced %s", got, f.sha256)
	}
	return nil
}
