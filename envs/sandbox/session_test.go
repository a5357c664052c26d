package sandbox

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

func openSession(t *testing.T, files ...File) *Session {
	t.Helper()
	python, err := Interpreter(t.Context(), "python3")
	if err != nil {
		t.Skip(err)
	}
	s, err := Open(t.Context(), SessionConfig{Python: python, Folder: "/app", Files: files, DiskMiB: 16,
		MemoryMiB: 4096, Env: map[string]string{"GIVEN": "yes"}})
	if errors.Is(err, ErrNoWalls) {
		t.Skip(err) // not every container may make namespaces
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func say(t *testing.T, s *Session, command string) Said {
	t.Helper()
	said, err := s.Run(t.Context(), command, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return said
}

func TestSessionLives(t *testing.T) {
	s := openSession(t, File{Path: "/app/a/b.txt", Mode: 0o640, Content: []byte("hello\n")})
	for _, c := range []struct {
		command, output string
		status          int
	}{
		{"pwd; cat a/b.txt; stat -c %a a/b.txt", "/app\nhello\n640\n", 0},
		{"cd a; export X=1; y='two words'; f() { echo \"$y $X\"; }", "", 0},
		{"pwd; f; echo $GIVEN $HOME; cat", "/app/a\ntwo words 1\nyes /root\n", 0},
		{"cat <<'EOF' > script\nit's \"quoted\" $X\nEOF\ncat script; false", "it's \"quoted\" $X\n", 1},
		{"if then", "", 2},
		{"sleep 1000 & echo started", "started\n", 0},
		{"python3 -c 'import subprocess; print(subprocess.run([\"echo\", \"x\"]).returncode)' 2>&1", "x\n0\n", 0},
		{"echo err >&2; [[ -e /dev/fd/1 ]] && cat <(echo sub)", "err\nsub\n", 0},
	} {
		said := say(t, s, c.command)
		if said.End != Done || said.Status != c.status || said.Output != c.output && c.command != "if then" {
			t.Errorf("%s: %+v, want %q and status %d", c.command, said, c.output, c.status)
		}
	}
	if said := say(t, s, "X=2; exit 3"); said.End != Exited || said.Status != 3 {
		t.Errorf("exit 3: %+v", said)
	}
	if said := say(t, s, "pwd; echo \"<$X>\""); said.Output != "/app/a\n<>\n" {
		t.Errorf("a new shell in the same folder: %+v", said)
	}
	said, err := s.Run(t.Context(), "echo before; sleep 1000", 200*time.Millisecond)
	if err != nil || said.End != TimedOut || said.Output != "before\n" {
		t.Errorf("a command that hangs: %+v, %v", said, err)
	}
	if said := say(t, s, "ls /proc | grep -c '^[0-9]'"); said.Output > "6" {
		t.Errorf("%s processes are left of those before", said.Output)
	}
	if said := say(t, s, "seq 400000"); said.End != Done || len(said.Output) > 2*262144+100 ||
		!strings.HasPrefix(said.Output, "1\n2\n") || !strings.HasSuffix(said.Output, "\n400000\n") ||
		!strings.Contains(said.Output, "bytes left out]") {
		t.Errorf("a long output: %d bytes, %s", len(said.Output), said.End)
	}
}

func TestSessionFiles(t *testing.T) {
	s := openSession(t)
	for _, c := range []struct {
		what   func() (Said, error)
		output string
		status int
	}{
		{func() (Said, error) { return s.Write(t.Context(), "/app/x/y", "one two") }, "written: 7 characters", 0},
		{func() (Said, error) { return s.Replace(t.Context(), "x/y", "two", "2") }, "replaced", 0},
		{func() (Said, error) { return s.Read(t.Context(), "x/y") }, "one 2", 0},
		{func() (Said, error) { return s.Replace(t.Context(), "x/y", "none", "") }, "stands 0 times", 1},
		{func() (Said, error) { return s.Read(t.Context(), "x/z") }, "No such file", 1},
		{func() (Said, error) { return s.Write(t.Context(), "/usr/x", "") }, "Read-only", 1},
	} {
		if said, err := c.what(); err != nil || !strings.Contains(said.Output, c.output) || said.Status != c.status {
			t.Errorf("%+v, %v; want %q", said, err, c.output)
		}
	}
}

// What lies outside is not there, cannot be changed or reached, and the keeper cannot be looked into or ended.
func TestSessionWalls(t *testing.T) {
	secret := t.TempDir() + "/secret"
	if err := os.WriteFile(secret, []byte("x"), 0o666); err != nil {
		t.Fatal(err)
	}
	s := openSession(t)
	for _, command := range []string{
		"cat " + secret, "cat /etc/shadow", "touch /usr/bin/x", "echo x > /usr/bin/env", "mount -t tmpfs x /mnt",
		"unshare -U true", "cat /proc/1/environ", "ls /proc/1/root/", "readlink /proc/1/fd/0", "chroot / true",
		"python3 -c 'import socket; socket.create_connection((\"1.1.1.1\", 53), 2)'",
		"mknod /tmp/sda b 8 0", "mount -o remount,rw /usr", "python3 -c 'import os; os.ptrace'", "kill -9 1; false",
	} {
		if said := say(t, s, command); said.End != Done || said.Status == 0 {
			t.Errorf("%s: %+v", command, said)
		}
	}
	if said := say(t, s, "grep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status"); !strings.Contains(said.Output,
		"CapEff:\t0000000000000000") || !strings.Contains(said.Output, "Seccomp:\t2") {
		t.Errorf("privileges: %s", said.Output)
	}
	if said := say(t, s, "head -c 40000000 /dev/zero > big; stat -c %s big"); strings.TrimSpace(said.Output) == "40000000" {
		t.Error("40 MB were written where 16 MiB may be")
	}
	if said := say(t, s, "f() { f & f & wait; }; f"); said.End != Processes {
		t.Errorf("a fork bomb: %+v", said)
	}
}

// Nothing that a session leaves is there when its tests judge: no processes, no files where the tests lie or where
// they write, no settings in its home.
func TestSessionIsTestedApart(t *testing.T) {
	s := openSession(t)
	say(t, s, `mkdir -p /logs/verifier; ln -s /app /tests; echo 1 > /logs/verifier/reward.txt
(while :; do mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; done) & disown
setsid sh -c 'while :; do echo 1 > /tests/test.sh; done' &
echo 'echo forged; exit 0' > /root/.bashrc; export BASH_ENV=/root/.bashrc PATH=/app:$PATH; alias bash=true
python3 -c "import site, os; os.makedirs(site.getusersitepackages())"; echo work > done.txt; cd /`)
	said, err := s.Test(t.Context(), Trial{Command: []string{"bash", "/tests/test.sh"}, Limit: time.Minute,
		Env:     map[string]string{"MORE": "x"},
		Collect: []string{"reward.txt", "other.txt"},
		Files: []File{{Path: "/tests/test.sh", Mode: 0o755, Content: []byte(
			`set -- /proc/[0-9]*; echo $#; pwd; cat done.txt; ls -A $HOME; echo $MORE $BASH_ENV
[ -e /logs/verifier/reward.txt ] && echo forged; echo 0.5 > /logs/verifier/reward.txt; sleep 1000 & exit 4`)}}})
	if err != nil || said.Output != "2\n/app\nwork\nx\n" || said.Status != 4 || said.End != Exited ||
		strings.TrimSpace(said.Found["reward.txt"]) != "0.5" || len(said.Found["other.txt"]) != 0 {
		t.Errorf("%+v, %v", said, err)
	}
	s.Close()
	if _, err := s.Run(t.Context(), "true", time.Second); err == nil {
		t.Error("a closed session runs commands")
	}
}
