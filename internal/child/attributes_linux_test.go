package child

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gyre/internal/child/childtest"
)

// With this variable the test binary is a parent: it starts a process, says its id, and waits for it.
const parent = "GYRE_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parent) != "" {
		runtime.LockOSThread()
		command := exec.Command("sleep", "1000")
		command.SysProcAttr = Attributes()
		if err := command.Start(); err != nil {
			panic(err)
		}
		fmt.Println(command.Process.Pid)
		command.Wait()
		return
	}
	os.Exit(m.Run())
}

func TestEndsWithItsParentAndHasAGroupOfItsOwn(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(self)
	command.Env = append(os.Environ(), parent+"=1")
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(output).ReadString('\n')
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("the parent wrote %q", line)
	}
	defer syscall.Kill(pid, syscall.SIGKILL)
	if group, err := syscall.Getpgid(pid); group != pid {
		t.Errorf("the child's process group is %d (%v), want %d, its own", group, err, pid)
	}
	if !childtest.Alive(pid) {
		t.Error("the child had ended before its parent was killed")
	}
	childtest.Kill(t, command)
	for begun := time.Now(); childtest.Alive(pid); time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > 30*time.Second {
			t.Fatal("the child outlives its parent, which was killed")
		}
	}
}
