package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gyre/internal/exitcode"
)

// takeMemoryAway leaves this process little more address space than it has.
func takeMemoryAway() {
	status, err := os.ReadFile("/proc/self/status")
	kib := uint64(0)
	for line := range strings.Lines(string(status)) {
		fmt.Sscanf(line, "VmSize: %d kB", &kib)
	}
	if err == nil {
		err = unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: (kib + 16<<10) << 10, Max: (kib + 16<<10) << 10})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the test could not take memory away:", err)
		os.Exit(exitcode.Usage)
	}
}

// A rank that is refused memory, whether Go's runtime or the engine asks for it, ends the run with one message that
// names it and says so, and the newest checkpoint goes on as if nothing had been.
func TestRankWithoutMemoryEndsTheRun(t *testing.T) {
	t.Parallel()
	calm, _ := calmRun(t)
	poor := t.TempDir()
	config := ranksConfig(t, poor)
	mustGyre(t, poor, append(append([]string{"train", config, "--ranks", "2"}, sure...), "run.steps=3")...)
	host, _ := os.Hostname()
	for rank := range 2 { // the one that writes to the terminal, and one that does not
		cmd := gyre(t, poor, append([]string{"train", config, "--ranks", "2", "--resume"}, sure...)...)
		cmd.Env = append(cmd.Env, fmt.Sprintf("GYRE_TEST_POOR_RANK=%d", rank))
		var errs bytes.Buffer
		cmd.Stderr = &errs
		begun := time.Now()
		err := cmd.Run()
		said, found := "", 0
		for line := range strings.Lines(errs.String()) {
			if strings.HasPrefix(line, "gyre: rank ") && !strings.HasPrefix(line, "gyre: rank 0 of 2") {
				said, found = line, found+1
			}
		}
		if code := cmd.ProcessState.ExitCode(); code != exitcode.Failed || found != 1 ||
			!strings.HasPrefix(said, fmt.Sprintf("gyre: rank %d on %s: ", rank, host)) ||
			!strings.Contains(said, "out of memory") {
			t.Fatalf("rank %d without memory: exit code %d (%v), want %d and one message of its want of memory:\n%s",
				rank, code, err, exitcode.Failed, errs.String())
		}
		t.Logf("after %v: %s", time.Since(begun).Round(time.Millisecond), said)
	}
	mustGyre(t, poor, append([]string{"train", config, "--ranks", "2", "--resume"}, sure...)...)
	sameRun(t, calm, filepath.Join(poor, "runs/tiny"))
}
