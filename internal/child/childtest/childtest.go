// Package childtest ends processes for tests, and sees to it that a kill hit what it was meant for: a test in which
// the process had ended by itself before shows nothing.
package childtest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// Kill kills a command that is at work, and waits for it. It is an error of the test when the command had ended
// before, or ends in another way.
func Kill(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	if !Alive(cmd.Process.Pid) {
		t.Errorf("%s had ended before it was to be killed", cmd.Path)
	}
	_ = cmd.Process.Kill() // how it ended is seen below
	_ = cmd.Wait()
	if !EndedBy(cmd, syscall.SIGKILL) {
		t.Errorf("%s was to be killed: %v", cmd.Path, cmd.ProcessState)
	}
}

// EndedBy tells whether a signal is what ended a command that was waited for.
func EndedBy(cmd *exec.Cmd, signal syscall.Signal) bool {
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == signal
}

// Alive tells a process that runs, or is stopped, from one that has ended and waits to be buried by its parent.
func Alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	state := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // what stands before may hold anything
	return err == nil && len(state) > 0 && !bytes.Contains([]byte("ZX"), state[0])
}
