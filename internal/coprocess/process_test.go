package coprocess

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"gyre/internal/child/childtest"
)

func start(t *testing.T, script string, limits Limits) *Process {
	t.Helper()
	p, err := Start(exec.Command("sh", "-c", script), limits)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestLines(t *testing.T) {
	p := start(t, `read a; printf '%s\r\n\n  \n12345678901\n12345678\ncut' "$a"; echo "  some words " >&2`,
		Limits{Line: 8, Stderr: 100})
	if err := <-p.Send([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range p.Lines {
		got = append(got, string(line))
	}
	p.Stop(time.Minute)
	if want := "hello|123456789|12345678"; strings.Join(got, "|") != want {
		t.Errorf("lines %q, want %s: one byte above the limit, no empty ones, none that is cut off", got, want)
	}
	if got := p.LastWords("it says: "); got != `it says: "some words"` {
		t.Errorf("last words %q", got)
	}
	if err := <-p.Send([]byte("more")); err == nil {
		t.Error("a program that has ended takes input")
	}
}

// A program is killed with what it has started, even one that reads nothing, writes without end and ignores polite
// requests.
func TestStop(t *testing.T) {
	p := start(t, `trap '' TERM; sleep 1000 & echo $!; exec yes`, Limits{Line: 10, Stderr: 10})
	child := string(<-p.Lines)
	sent := p.Send(make([]byte, 1<<20))
	if !childtest.Alive(p.PID()) {
		t.Error("the program had ended before it was stopped")
	}
	begun := time.Now()
	p.Stop(0)
	if !childtest.EndedBy(p.command, syscall.SIGKILL) {
		t.Errorf("the program was to be killed: %v", p.command.ProcessState)
	}
	if err := <-sent; err == nil {
		t.Error("a megabyte was read by a program that reads nothing")
	}
	for syscall.Kill(-p.PID(), 0) == nil && time.Since(begun) < 30*time.Second { // killed, but perhaps not yet buried
		time.Sleep(10 * time.Millisecond)
	}
	if syscall.Kill(-p.PID(), 0) == nil {
		t.Errorf("%s, which the program started, lives on", child)
	}
}

// A program that ends by itself when its input is closed may do so.
func TestStopIsPoliteFirst(t *testing.T) {
	p := start(t, `cat >/dev/null; echo goodbye >&2`, Limits{Line: 10, Stderr: 100})
	p.Stop(time.Minute)
	if got := p.LastWords(""); got != `"goodbye"` {
		t.Errorf("last words %q: it was not given the time to say any", got)
	}
}

func TestStartFails(t *testing.T) {
	if _, err := Start(exec.Command("/no/such/program"), Limits{Line: 1, Stderr: 1}); err == nil {
		t.Error("a program that is not there has started")
	}
}

// A line that a program prints before it is asked, or beside its answer, is found; a request arrives in one piece.
func TestSettle(t *testing.T) {
	for script, want := range map[string]string{
		`sleep 0.2; echo 0.25; cat`:                             "0.25",
		`read a; echo $a; echo more; cat`:                       "more",
		`read a; echo $a; sleep 0.05; echo more; cat`:           "more",
		`read a; echo $a; read a; echo $a; sleep 1000`:          "",
		`read a; echo $a; exit 1`:                               "",
		`sleep 0.2; while read a; do echo $a; sleep 0.05; done`: "",
	} {
		p := start(t, script, Limits{Line: 100, Stderr: 100})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		found := ""
		note := func(err error) {
			if stray := (Unasked{}); errors.As(err, &stray) {
				found = stray.Line
			}
		}
		note(p.Settle(ctx))
		for _, request := range []string{`{"a":1}`, `{"b":2}`} {
			if found != "" {
				break
			}
			answer, err := p.Ask(ctx, []byte(request))
			if err == nil && string(answer) != request {
				t.Errorf("%s: %q to %q", script, answer, request)
			}
			if note(err); err == nil && request == `{"a":1}` {
				note(p.Settle(ctx))
			}
		}
		if found != want {
			t.Errorf("%s: the line %q, want %q", script, found, want)
		}
		cancel()
		p.Stop(0)
	}
	p := start(t, "sleep 1000", Limits{Line: 10, Stderr: 10})
	defer p.Stop(0)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.Settle(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a program that reads nothing: %v", err)
	}
}
