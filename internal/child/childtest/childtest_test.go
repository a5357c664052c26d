package childtest

import (
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// failures counts what a test complains of.
type failures struct {
	testing.TB
	count int
}

func (f *failures) Helper()               {}
func (f *failures) Errorf(string, ...any) { f.count++ }

func TestKill(t *testing.T) {
	for _, x := range []struct {
		script string
		ends   bool // before it is killed
	}{{"exec sleep 1000", false}, {"exit 0", true}, {"kill -TERM $$", true}} {
		cmd := exec.Command("sh", "-c", x.script)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for begun := time.Now(); x.ends && Alive(cmd.Process.Pid) && time.Since(begun) < time.Minute; {
			time.Sleep(time.Millisecond)
		}
		seen := &failures{TB: t}
		Kill(seen, cmd)
		if missed := seen.count > 0; missed != x.ends || EndedBy(cmd, syscall.SIGKILL) == x.ends {
			t.Errorf("%s: %d complaints, ended with %v", x.script, seen.count, cmd.ProcessState)
		}
		if Alive(cmd.Process.Pid) {
			t.Errorf("%s: alive after its end", x.script)
		}
	}
}
