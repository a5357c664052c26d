package ranks

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"gyre/internal/child"
)

// agreedCodes are exit codes that all ranks come to together: a rule that ended the run, an interruption.
var agreedCodes = []int{0, 5, 128 + int(syscall.SIGINT), 128 + int(syscall.SIGTERM)}

// fault is what was wrong with the end of a process, "" if it ended in good order.
func (p *process) fault(kills int) string {
	if p.failed == nil && slices.Contains(agreedCodes, p.cmd.ProcessState.ExitCode()) {
		return ""
	}
	return p.how(kills)
}

const lessMemory = "; lower actor.micro_batch_tokens, set actor.recompute_activations = true, share more out " +
	"(fsdp.shard), or start fewer ranks on this machine"

// how a process ended.
func (p *process) how(kills int) string {
	if p.failed != nil {
		return fmt.Sprintf("it could not be started: %v", p.failed)
	}
	status, _ := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() && status.Signal() == syscall.SIGKILL {
		if outOfMemoryKills() > kills {
			return "out of memory: the kernel ended it (SIGKILL)" + lessMemory
		}
		return "it was ended by SIGKILL (the kernel's way where memory is short)"
	}
	how := fmt.Sprintf("it ended with exit code %d", p.cmd.ProcessState.ExitCode())
	if status.Signaled() {
		how = "it was ended by " + unix.SignalName(status.Signal())
	}
	dying := p.said.death()
	switch {
	case dying != "" && memoryShort.MatchString(dying):
		first, _, _ := strings.Cut(dying, "\n")
		what := "out of memory: "
		if strings.Contains(first, "thread") {
			what = "out of memory, or of the threads that it may have: "
		}
		return what + how + ", saying " + strings.TrimSpace(first) + lessMemory
	case dying != "" && p.rank > 0:
		return how + "; it crashed:\n" + dying
	case p.rank == 0: // whose words have been seen
		return how
	}
	return how + p.said.last.After("; the last it said:\n")
}

// dies begins the last words of a program that ends against its will: of Go's runtime, or of C++'s.
var dies = regexp.MustCompile(`(?m)^(?:fatal error: |panic: |runtime: |runtime/cgo: |terminate called |SIG[A-Z]+: )`)

// memoryShort is said by those for want of memory: of bytes, or of a thread's stack.
var memoryShort = regexp.MustCompile(`out of memory|[Cc]annot allocate memory|bad_alloc|pthread_create failed|failed to create new OS thread`)

// words keeps what matters of what a process says: the end, and how its dying begins.
type words struct {
	last  *child.LastWords
	mu    sync.Mutex
	line  []byte // that has begun: a line may come in pieces
	dying []byte
}

const keptWords = 4 << 10

func newWords() *words { return &words{last: child.KeepWords(keptWords)} }

func (w *words) Write(data []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dying == nil {
		text := append(w.line, data...)
		if at := dies.FindIndex(text); at != nil {
			w.dying = text[at[0]:]
		}
		w.line = bytes.Clone(text[bytes.LastIndexByte(text, '\n')+1:])
		w.line = w.line[:min(len(w.line), keptWords)]
	} else {
		w.dying = append(w.dying, data...)
	}
	w.dying = w.dying[:min(len(w.dying), keptWords)]
	return w.last.Write(data)
}

// death is what the process said as it died, "" if it did not.
func (w *words) death() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(bytes.TrimSpace(w.dying))
}

// outOfMemoryKills counts the processes that the kernel has ended for want of memory, in this control group where
// that can be read, on this machine otherwise; 0 where neither can be.
func outOfMemoryKills() int {
	files := []string{"/sys/fs/cgroup/memory.events", "/proc/vmstat"}
	if own, err := os.ReadFile("/proc/self/cgroup"); err == nil {
		if _, group, ok := strings.Cut(string(own), "0::"); ok {
			files = slices.Insert(files, 0, filepath.Join("/sys/fs/cgroup", strings.TrimSpace(group), "memory.events"))
		}
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			var n int
			if found, _ := fmt.Sscanf(line, "oom_kill %d", &n); found == 1 {
				return n
			}
		}
	}
	return 0
}
