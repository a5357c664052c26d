package coprocess

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
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
	begun := time.Now()
	p.Stop(0)
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
