package coprocess

import (
	"context"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gyre/internal/quote"
)

// Unasked is a line that a program has written although nothing was asked.
type Unasked struct{ Line string }

func (e Unasked) Error() string {
	return "it printed a line that nobody asked for: " + quote.Text(e.Line, 200) +
		" (a line is an answer: print what is none to standard error)"
}

// opening begins every request to a program that settles: requests are JSON objects.
const opening = "{"

// Settle waits until the program reads its input again, as long as ctx lasts: it sends the beginning of the next
// request, which Ask completes, and sees it taken. What the program says to the request before, or before its first,
// it has said by then: more than the answer is an error, Unasked. One that has ended is settled.
func (p *Process) Settle(ctx context.Context) error {
	for look, quiet := time.Duration(0), 0; quiet < 20; look++ { // a line that has been read is on its way
		taken := unread(p.input) == 0
		if taken && !p.begun { // there is room for it: the write does not wait
			_, err := p.input.Write([]byte(opening))
			p.begun, taken = err == nil, err != nil
		}
		if quiet++; !taken || unread(p.output) > 0 {
			quiet = 0
		}
		select {
		case line, open := <-p.Lines:
			if open {
				return Unasked{string(line)}
			}
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		default:
			if runtime.Gosched(); look > 200 && quiet == 0 {
				time.Sleep(min(look*time.Microsecond, 5*time.Millisecond))
			}
		}
	}
	return nil
}

// Waits reports whether a program that settled waits for a request; one that has ended does not.
func (p *Process) Waits() bool {
	select {
	case _, open := <-p.Lines:
		return open
	default:
		return p.begun
	}
}

// unread is how many bytes lie in a pipe; 0 where that is not known.
func unread(end any) (n int) {
	request := uint(0x541b) // FIONREAD
	if runtime.GOOS == "darwin" {
		request = 0x4004667f
	}
	if pipe, ok := end.(syscall.Conn); ok {
		if raw, err := pipe.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), request) })
		}
	}
	return n
}
