package ranks

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
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

const lessMemory = "; lower actor.micro_batch_tokens, set actor.recompute_activations = true, shard more " +
	"(fsdp.shard), or start fewer ranks on this machine"

// how a process ended.
func (p *process) how(kills int) string {
	if p.failed != nil {
		return fmt.Sprintf("it could not be started: %v", p.failed)
	}
	status, _ := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	how := fmt.Sprintf("it ended with exit code %d", p.cmd.ProcessState.ExitCode())
	switch {
	case !status.Signaled():
	case status.Signal() != syscall.SIGKILL:
		how = "it was ended by " + unix.SignalName(status.Signal())
	case outOfMemoryKills() > kills:
		return "out of memory: the kernel ended it (SIGKILL)" + lessMemory
	default:
		return "it was ended by SIGKILL (the kernel's way where memory is short)"
	}
	said := p.said.After("")
	at := dies.FindStringIndex(said)
	if at == nil {
		if p.rank == 0 || said == "" { // rank 0's words have been seen
			return how
		}
		return how + "; the last it said:\n" + said[max(len(said)-shownWords, 0):]
	}
	dying := said[at[0]:]
	dying = dying[:min(len(dying), shownWords)]
	if memoryShort.MatchString(dying) {
		first, _, _ := strings.Cut(dying, "\n")
		what := "out of memory: "
		if strings.Contains(first, "thread") {
			what = "out of memory, or of the threads that it may have: "
		}
		return what + how + ", saying " + strings.TrimSpace(first) + lessMemory
	}
	if p.rank == 0 {
		return how
	}
	return how + "; it crashed:\n" + dying
}

// A crash of Go's runtime begins with its cause and goes on with all goroutines.
const (
	keptWords  = 256 << 10 // bytes of what a process has said
	shownWords = 4 << 10   // of them in a message
)

// dies begins the last words of a program that ends against its will: of Go's runtime, or of C++'s.
var dies = regexp.MustCompile(`(?m)^(?:fatal error: |panic: |runtime: |runtime/cgo: |terminate called |SIG[A-Z]+: )`)

// memoryShort is said by those for want of memory: of bytes, or of a thread's stack.
var memoryShort = regexp.MustCompile(`out of memory|[Cc]annot allocate memory|bad_alloc|pthread_create failed|` +
	`failed to create new OS thread`)

// outOfMemoryKills counts the processes that the kernel has ended for want of memory, in this control group where
// that can be read, on this machine otherwise; 0 where neither can be.
func outOfMemoryKills() (kills int) {
	own, _ := os.ReadFile("/proc/self/cgroup")
	_, group, _ := strings.Cut(string(own), "0::")
	for _, path := range []string{filepath.Join("/sys/fs/cgroup", strings.TrimSpace(group), "memory.events"),
		"/sys/fs/cgroup/memory.events", "/proc/vmstat"} {
		text, _ := os.ReadFile(path)
		for line := range strings.Lines(string(text)) {
			if found, _ := fmt.Sscanf(line, "oom_kill %d", &kills); found == 1 {
				return kills
			}
		}
	}
	return 0
}
