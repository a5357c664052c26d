package cli

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"gyre/internal/child/childtest"
)

// storm kills commands at random moments until enough of the kills have hit one at work: after it wrote to the log of
// its run, and before its end.
type storm struct {
	random      *rand.Rand
	log         string        // of the run
	least, most time.Duration // that a command is left alone; most follows the pace of the machine

	kills, atWork, tries int
}

// over tells whether there were so many kills, at least half of them of a command at work.
func (s *storm) over(t *testing.T, kills int) bool {
	t.Helper()
	if s.tries > 20+10*kills {
		t.Fatalf("after %d tries, %d kills, %d of them of a command at work; want %d", s.tries, s.kills, s.atWork, kills)
	}
	return s.kills >= kills && s.atWork >= (kills+1)/2
}

// strike starts a command and kills it. It tells whether the command got through before, which must be without error.
func (s *storm) strike(t *testing.T, cmd *exec.Cmd) (through bool) {
	t.Helper()
	s.tries++
	before := sizeOf(s.log)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }() // ends with the command, which is killed
	wait := s.least + time.Duration(s.random.Int64N(int64(s.most-s.least)))
	select {
	case err := <-done:
		done <- err
	case <-time.After(wait):
		_ = cmd.Process.Kill() // how it ended is seen below
	}
	err := <-done
	if !childtest.EndedBy(cmd, syscall.SIGKILL) {
		if err != nil {
			t.Fatalf("after %d kills: %v", s.kills, err)
		}
		s.most = s.least + (s.most-s.least)/2 + time.Millisecond
		return true
	}
	if s.kills++; sizeOf(s.log) > before {
		s.atWork++
	} else {
		s.most += (s.most - s.least) / 4
	}
	return false
}

// sizeOf is 0 where there is no file.
func sizeOf(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
