package ranks

import (
	"os/exec"
	"strings"
	"testing"

	"gyre/internal/child"
)

// The cause of a process's end is taken from how it ended and from what it said, in whatever pieces that came.
func TestCauses(t *testing.T) {
	trace := "\ngoroutine 1 [running]:\n" + strings.Repeat("runtime.throw(0x1)\n\tpanic.go:1229\n", 400)
	for _, x := range []struct {
		rank         int
		script, said string
		want, not    string
	}{
		{1, "exit 2", "step 3\nfatal error: runtime: cannot allocate memory\n" + trace,
			"out of memory: it ended with exit code 2, saying fatal error: runtime: cannot allocate memory; lower ",
			"goroutine"},
		{0, "exit 2", "runtime: out of memory: cannot allocate 4194304-byte block (9 in use)\nfatal error: out of " +
			"memory\n" + trace, "out of memory: it ended", "goroutine"},
		{1, "kill -ABRT $$", "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  " +
			"std::bad_alloc\nSIGABRT: abort\n" + trace,
			"out of memory: it was ended by SIGABRT, saying terminate called", "goroutine"},
		{1, "exit 2", "runtime/cgo: pthread_create failed: Resource temporarily unavailable\nSIGABRT: abort\n" + trace,
			"out of memory, or of the threads that it may have: ", "goroutine"},
		{1, "exit 2", "a warning\npanic: index out of range\n" + trace,
			"it ended with exit code 2; it crashed:\npanic: index out of range\n\ngoroutine 1", "a warning"},
		{0, "exit 2", "panic: index out of range\n" + trace, "it ended with exit code 2", "panic"}, // it has been seen
		{1, "exit 7", "one thing\nanother: out of memory it was not\n",
			"it ended with exit code 7; the last it said:\none thing\nanother", "lower"},
		{1, "kill -KILL $$", "panic: no\n", "it was ended by SIGKILL", "panic"},
		{1, "exit 3", "", "it ended with exit code 3", ";"},
	} {
		for _, piece := range []int{1, 7, 1 << 20} {
			p := &process{rank: x.rank, said: child.KeepWords(keptWords), cmd: exec.Command("sh", "-c", x.script)}
			for rest := x.said; rest != ""; rest = rest[min(piece, len(rest)):] {
				p.said.Write([]byte(rest[:min(piece, len(rest))]))
			}
			p.cmd.Run()
			got := p.how(1 << 30)
			if !strings.HasPrefix(got, x.want) || strings.Contains(got, x.not) || len(got) > 2*shownWords {
				t.Errorf("rank %d, %s, in pieces of %d: %q, want %q and no %q", x.rank, x.script, piece, got, x.want,
					x.not)
			}
		}
	}
}
