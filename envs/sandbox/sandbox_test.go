package sandbox

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// shared is one sandbox for all tests; they are skipped where the machine has none, which New says.
var shared = sync.OnceValues(func() (*Sandbox, error) {
	s, err := New(context.Background(), Config{1, 256, Full, "python3"})
	if err == nil {
		s.output, s.disk = 64<<10, 1<<20
	}
	return s, err
})

func confined(t *testing.T) *Sandbox {
	t.Helper()
	s, err := shared()
	if errors.Is(err, ErrNoWalls) || errors.Is(err, exec.ErrNotFound) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func run(t *testing.T, s *Sandbox, job Job) []Outcome {
	t.Helper()
	outcomes, err := s.Run(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	return outcomes
}

func TestCalls(t *testing.T) {
	s := confined(t)
	program := "import sys\nn = int(sys.stdin.readline())\nprint(n * n)\nif n > 2: raise ValueError('too big')"
	got := run(t, s, Job{Program: program, Calls: []Call{{Stdin: "2\n"}, {Stdin: "3\n"}, {Stdin: "-1"}}})
	if len(got) != 3 || got[0].Status != OK || got[0].Stdout != "4\n" || got[2].Stdout != "1\n" {
		t.Errorf("%+v", got)
	}
	if got[1].Status != Failed || got[1].Stdout != "9\n" || got[1].Error != "ValueError: too big (line 4)" {
		t.Errorf("an exception: %+v", got[1])
	}
	for program, want := range map[string]string{
		"def add(a, b): return [a + b]":                                          "[5]",
		"class Solution:\n    def add(self, a, b):\n        return [a + b]":      "[5]",
		"class Solution:\n    pass\ndef add(a, b):\n    print('x'); return None": "null",
	} {
		got := run(t, s, Job{Program: program, Calls: []Call{{Function: "add", Args: []any{2, 3}}}})
		if got[0].Status != OK || string(got[0].Value) != want {
			t.Errorf("%s: %+v, want %s", program, got[0], want)
		}
	}
	for program, want := range map[string]string{
		"x = 1":                          "no function add",
		"def add(a, b): return object()": "not JSON serializable",
		"def add(a, b): return a +":      "SyntaxError",
		"import sys; sys.exit(3)":        "exit status 3",
	} {
		if got := run(t, s, Job{Program: program,
			Calls: []Call{{Function: "add", Args: []any{2, 3}}}}); got[0].Status != Failed ||
			!strings.Contains(got[0].Error, want) {
			t.Errorf("%s: %+v, want an error with %q", program, got[0], want)
		}
	}
	if got := run(t, s, Job{Program: "x = 20\nx += 1\nx * 2", Echo: true}); got[0].Stdout != "42\n" {
		t.Errorf("echo: %+v", got[0])
	}
}

// Whatever a program tries, it is stopped, and the call after it is answered.
func TestHostilePrograms(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()) // what others leave in the machine's is not ours
	s := confined(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o666); err != nil {
		t.Fatal(err)
	}
	quote := strconv.Quote
	for _, c := range []struct {
		name, program string
		want          Status
	}{
		{"fork", "import os\nwhile True: os.fork()", Forbidden},
		{"clone", "import ctypes\nctypes.CDLL(None).syscall(56, 0, 0, 0, 0, 0)", Forbidden},
		{"process", "import subprocess; subprocess.run(['true'])", Forbidden},
		{"shell", "import os; os.system('true')", Forbidden},
		{"execute", "import os; os.execv('/bin/true', ['true'])", Forbidden},
		{"allocate", "x = []\nwhile True: x.append(bytearray(1 << 24))", Memory},
		{"allocate at once", "x = bytearray(1 << 40)", Memory},
		{"sleep", "import time; time.sleep(60)", Timeout},
		{"spin", "while True: pass", Timeout},
		{"close and spin", "import os\nfor fd in (0, 1, 2, 3): os.close(fd)\nwhile True: pass", Timeout},
		{"ignore signals", "import signal, time\nfor n in range(1, 32):\n  try: signal.signal(n, signal.SIG_IGN)\n  " +
			"except OSError: pass\nwhile True: pass", Timeout},
		{"print for ever", "while True: print('x' * 1000)", Output},
		{"fill the disk", "f = open('big', 'wb')\nwhile True: f.write(bytes(1 << 16)); f.flush()", Disk},
		{"many files", "i = 0\nwhile True:\n  open(str(i), 'w').write('x' * 9000); i += 1", Disk},
		{"write outside", "open(" + quote(victim) + ", 'w').write('gone')", Failed},
		{"append outside", "open(" + quote(victim) + ", 'a').write('more')", Failed},
		{"remove outside", "import os; os.unlink(" + quote(victim) + ")", Failed},
		{"truncate outside", "import os; os.truncate(" + quote(victim) + ", 0)", Failed},
		{"chmod outside", "import os; os.chmod(" + quote(victim) + ", 0)", Failed},
		{"link from outside", "import os; os.link(" + quote(victim) + ", 'mine'); open('mine', 'w').write('gone')",
			Failed},
		{"symlink from outside", "import os; os.symlink(" + quote(victim) +
			", 'mine'); open('mine', 'w').write('gone')", Failed},
		{"read outside", "print(open(" + quote(victim) + ").read())", Failed},
		{"list outside", "import os; print(os.listdir('/'))", Failed},
		{"read environment", "print(open('/proc/" + strconv.Itoa(os.Getpid()) + "/environ').read())", Failed},
		{"rename out", "import os; open('a', 'w').close(); os.rename('a', " +
			quote(filepath.Join(filepath.Dir(victim), "new")) + ")", Failed},
		{"connect", "import socket; socket.create_connection(('127.0.0.1', " +
			strconv.Itoa(listener.Addr().(*net.TCPAddr).Port) + "))", Forbidden},
		{"unix socket", "import socket; socket.socket(socket.AF_UNIX)", Forbidden},
		{"signal", "import os; os.kill(" + strconv.Itoa(os.Getpid()) + ", 9)", Forbidden},
		{"signal the runner", "import os; os.kill(os.getppid(), 9)", Forbidden},
		{"trace", "import ctypes; ctypes.CDLL(None).ptrace(16, 1, 0, 0)", Forbidden},
		{"mount", "import ctypes; ctypes.CDLL(None).mount(b'none', b'/tmp', b'tmpfs', 0, 0)", Forbidden},
		{"leave the group", "import os; os.setsid()", Failed},
		{"more memory", "import resource as r; r.setrlimit(r.RLIMIT_AS, (-1, -1))", Failed},
		{"memory file", "import os; os.memfd_create('x')", Failed},
		{"crash", "import ctypes; ctypes.string_at(0)", Crash},
		{"deep recursion", "def f(n): return f(n + 1)\nf(0)", ""},
		{"false answer", "import os; os.write(3, b'{\"value\": 1}{'); os._exit(0)", OK},
		{"broken answer", "import os; os.write(3, b'\\xff[1'); os._exit(0)", OK},
		{"raise the end", "raise SystemExit('no')", Failed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.name == "clone" && runtime.GOARCH != "amd64" {
				t.Skip("the number of clone is amd64's")
			}
			begin := time.Now()
			// The second call is harmless: it must not notice the first.
			program := "import sys\nif sys.stdin.readline():\n" + "  " + strings.ReplaceAll(c.program, "\n", "\n  ") +
				"\nelse:\n  print('fine')"
			got := run(t, s, Job{Program: program, Calls: []Call{{Stdin: "go\n"}, {}}})
			if c.want != "" && got[0].Status != c.want || c.want == "" && got[0].Status == OK {
				t.Errorf("%s: %s, want %s", got[0].Status, got[0].Error, c.want)
			}
			if got[1].Status != OK || got[1].Stdout != "fine\n" {
				t.Errorf("the call after it: %+v", got[1])
			}
			if d := time.Since(begin); d > 30*time.Second {
				t.Errorf("it took %s", d)
			}
		})
	}
	t.Cleanup(func() {
		if text, err := os.ReadFile(victim); err != nil || string(text) != "precious" {
			t.Errorf("the file outside holds %q, %v", text, err)
		}
		if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "gyre-sandbox-*")); len(left) > 0 {
			t.Errorf("scratch folders are left: %v", left)
		}
	})
}

// What ordinary programs do works.
func TestOrdinaryPrograms(t *testing.T) {
	s := confined(t)
	for name, program := range map[string]string{
		"library": "import math, collections, itertools, functools, heapq, re, json, random, decimal, datetime, " +
			"bisect, string\nprint(math.comb(5, 2))",
		"files": "open('a.txt', 'w').write('10')\nprint(open('a.txt').read())",
		"threads": "import threading\nx = []\nt = threading.Thread(target=lambda: x.append(10)); t.start(); " +
			"t.join()\nprint(x[0])",
		"entry":   "def main():\n    print(10)\nif __name__ == '__main__':\n    main()",
		"exit":    "print(10)\nexit(0)",
		"deep":    "def f(n): return 0 if n == 0 else 1 + f(n - 1)\nprint(f(5000) // 500)",
		"unicode": "print('é' and 10)",
	} {
		if got := run(t, s, Job{Program: program}); got[0].Status != OK || got[0].Stdout != "10\n" {
			t.Errorf("%s: %+v", name, got[0])
		}
	}
}

func TestCancelledRun(t *testing.T) {
	s := confined(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := s.Run(ctx, Job{Program: "import time; time.sleep(60)", Calls: make([]Call, 20)})
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) > 3*time.Second {
		t.Errorf("%v after %s", err, time.Since(begin))
	}
}

func TestLimitsOnly(t *testing.T) {
	s, err := New(t.Context(), Config{1, 512, Limits, "python3"})
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	got := run(t, s, Job{Program: "while True: pass"})
	if got[0].Status != Timeout {
		t.Errorf("%+v", got[0])
	}
	for want, c := range map[string]Config{
		"at least a second":       {0, 512, Full, "python3"},
		"isolation full or limit": {1, 512, "some", "python3"},
		"another interpreter":     {1, 512, Full, "no-such-python"},
	} {
		if _, err := New(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want one with %q", c, err, want)
		}
	}
}

func BenchmarkJob(b *testing.B) {
	s, err := shared()
	if err != nil {
		b.Skip(err)
	}
	for _, calls := range []int{1, 20} {
		b.Run(strconv.Itoa(calls)+"calls", func(b *testing.B) {
			for b.Loop() {
				if _, err := s.Run(b.Context(), Job{Program: "print(int(input()) + " +
					"1)", Calls: slices.Repeat([]Call{{Stdin: "1"}}, calls)}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
