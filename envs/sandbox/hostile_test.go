package sandbox

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// hostile programs try to break out, to kill what runs them, or to end in a way that the sandbox cannot score. The
// name OUTSIDE in them is a file outside, GYRE the process of this test, and RUNNER their parent. "function" as the
// first word of a name has their function f called.
type attack struct {
	name, program string
	want          []Status
}

var hostile = []attack{
	// Values and answers.
	{"function: NaN", "def f(): return float('nan')", []Status{Failed}},
	{"function: infinity", "def f(): return [float('inf')]", []Status{Failed}},
	{"function: deep value", "def f():\n x = []\n for _ in range(20000): x = [x]\n return x", []Status{Failed, Crash}},
	{"function: value that holds itself", "def f():\n x = []\n x.append(x)\n return x", []Status{Failed, Crash}},
	{"function: value that JSON lacks", "def f(): return {1, 2}", []Status{Failed}},
	{"function: keys that JSON lacks", "def f(): return {(1, 2): 3}", []Status{Failed}},
	{"function: huge value", "def f(): return 'x' * (1 << 22)", []Status{Output}},
	{"function: huge number", "def f(): return 10 ** 5000", []Status{Failed, OK}},
	{"function: class that raises when it is looked at", "class Solution:\n def __getattr__(self, n): raise SystemError" +
		"\n def __init__(self): raise KeyError('f')\ndef f(): pass", []Status{OK}},
	{"function: NaN into the answer", "def f(): os.write(3, b'{\"value\": NaN}'); os._exit(0)", []Status{Failed}},
	{"function: brackets into the answer", "def f(): os.write(3, b'{\"value\": ' + b'[' * 20000 + b']' * 20000 + b'}'); " +
		"os._exit(0)", []Status{Failed}},
	{"function: open brackets into the answer", "def f(): os.write(3, b'[' * 20000); os._exit(0)", []Status{Failed}},
	{"function: two answers", "def f(): os.write(3, b'{\"value\": 1}'); return 2", []Status{Failed}},
	{"function: a list as the answer", "def f(): os.write(3, b'[1]'); os._exit(0)", []Status{Failed}},
	{"function: answer without end", "def f():\n while True: os.write(3, b'x' * 65536)", []Status{Output}},
	{"function: no answer", "def f(): os._exit(0)", []Status{Failed}},
	{"function: answer closed", "def f(): os.close(3); return 1", []Status{Failed}},
	{"claim that the sandbox is broken", "os.write(3, b'{\"broken\": \"x\"}'); os._exit(1)", []Status{Failed}},
	{"claim an error that is a list", "os.write(3, b'{\"error\": [1]}'); os._exit(1)", []Status{Failed}},
	{"write into every descriptor", "for fd in range(1024):\n try: os.write(fd, b'{\"status\": \"ok\"}\\n{\"broken\": 1}')\n" +
		" except OSError: pass\nos._exit(1)", []Status{Failed}},
	{"close every descriptor", "os.closerange(0, 1024); 1 / 0", []Status{Failed}},
	{"replace every descriptor", "for fd in range(60):\n try: os.dup2(0, fd)\n except OSError: pass\n1 / 0",
		[]Status{Failed}},
	// The interpreter.
	{"no stdout", "sys.stdout = None; 1 / 0", []Status{Failed}},
	{"no stdout and no error", "sys.stdout = None", []Status{OK}},
	{"stdout that raises", "class S:\n def flush(self): raise KeyboardInterrupt\nsys.stdout = S(); 1 / 0",
		[]Status{Failed}},
	{"closed stdout", "sys.stdout.close(); os.close(1)", []Status{OK}},
	{"trace that raises", "def t(*a): raise ValueError\nsys.settrace(t); json.dumps([1])", []Status{Failed}},
	{"trace that raises later", "def t(*a): raise ValueError\nsys.settrace(t)", []Status{OK, Failed}},
	{"profile that raises", "def t(*a): raise ValueError\nsys.setprofile(t)", []Status{OK, Failed}},
	{"audit hook that raises", "def h(*a): raise ValueError\nsys.addaudithook(h); open('x', 'w')", []Status{Failed}},
	{"audit hook that exits", "def h(*a): os._exit(7)\nsys.addaudithook(h); open('x', 'w')", []Status{Failed}},
	{"exception that cannot be printed", "class E(Exception):\n def __str__(self): raise E\nraise E", []Status{Failed}},
	{"exception with a name without end", "raise type('E' * (1 << 21), (Exception,), {})", []Status{Failed, Output}},
	{"exception with half a character", "raise ValueError('\\ud800')", []Status{Failed}},
	{"base exception", "class E(BaseException): pass\nraise E", []Status{Failed}},
	{"exit with a huge number", "sys.exit(1 << 70)", []Status{OK, Failed}},
	{"exit with an object", "raise SystemExit([1])", []Status{Failed}},
	{"exit that does nothing", "os._exit = lambda *a: None; 1 / 0", []Status{Failed}},
	{"exit in C", "import ctypes; ctypes.CDLL(None).exit(3)", []Status{Failed}},
	{"exit by system call", "import ctypes; ctypes.CDLL(None).syscall(231, 3)", []Status{Failed, Forbidden}},
	{"end of a thread", "import ctypes; ctypes.CDLL(None).pthread_exit(0)", []Status{OK, Failed, Crash, Forbidden}},
	{"handler at exit", "import atexit; atexit.register(lambda: 1 / 0); sys.exit(1)", []Status{Failed}},
	{"excepthook", "sys.excepthook = lambda *a: os._exit(0); 1 / 0", []Status{Failed}},
	{"json without dumps", "json.dumps = None; json.loads = None; 1 / 0", []Status{Failed}},
	{"os without write", "os.write = os.close = os.wait4 = None; 1 / 0", []Status{Failed}},
	{"modules gone", "sys.modules.clear(); 1 / 0", []Status{Failed}},
	{"builtins gone", "import builtins\nfor n in list(vars(builtins)):\n if n not in ('hasattr',): delattr(builtins, n)",
		[]Status{Failed}},
	{"the caller's frame", "f = sys._getframe()\nwhile f:\n f.f_locals.clear(); f.f_globals.clear(); f = f.f_back\n1 / 0",
		[]Status{Failed}},
	{"the caller's job", "f = sys._getframe().f_back.f_back; f.f_locals['job']['calls'].clear(); 1 / 0", []Status{Failed}},
	{"garbage of everything", "import gc\nfor o in gc.get_objects():\n if isinstance(o, dict): o.clear()",
		[]Status{Failed, Crash, Timeout}},
	{"recursion in C", "import sys; sys.setrecursionlimit(1 << 30)\nx = []\nfor _ in range(200000): x = [x]\nrepr(x)",
		[]Status{Failed, Crash, Memory, Timeout}},
	{"a deep program", "eval('(' * 100000 + ')' * 100000)", []Status{Failed, Memory, Crash, Timeout}},
	{"a program with a null", "exec('x = 1\\0')", []Status{Failed}},
	{"surviving threads", "import threading, time\nthreading.stack_size(65536)\n" +
		"for _ in range(20): threading.Thread(target=time.sleep, args=(60,))" +
		".start()", []Status{OK}},
	{"bomb of threads", "import threading, time\nthreading.stack_size(32768)\nwhile True: threading.Thread(" +
		"target=time.sleep, args=(60,)).start()", []Status{Forbidden, Failed, Memory, Timeout}},
	// Signals.
	{"realtime signal", "import signal\nsignal.setitimer(signal.ITIMER_REAL, 0.01); signal.pause()", []Status{Crash}},
	{"realtime signal of a timer", "import ctypes\nclass E(ctypes.Structure): _fields_ = [('v', ctypes.c_void_p), " +
		"('s', ctypes.c_int), ('n', ctypes.c_int), ('p', ctypes.c_char * 48)]\nclass T(ctypes.Structure): _fields_ = " +
		"[('a', ctypes.c_long), ('b', ctypes.c_long), ('c', ctypes.c_long), ('d', ctypes.c_long)]\n" +
		"l, t = ctypes.CDLL(None), ctypes.c_void_p()\nl.timer_create(1, ctypes.byref(E(0, 45, 0)), ctypes.byref(t))\n" +
		"l.timer_settime(t, 0, ctypes.byref(T(0, 0, 0, 1000)), None)\nimport time; time.sleep(5)", []Status{Crash}},
	{"kill the runner", "os.kill(RUNNER, 9)", []Status{Forbidden}},
	{"kill Gyre", "os.kill(GYRE, 9)", []Status{Forbidden}},
	{"kill all", "os.kill(-1, 9)", []Status{Forbidden}},
	{"kill the group", "os.killpg(0, 9)", []Status{Forbidden}},
	{"stop the runner", "import signal; os.kill(RUNNER, signal.SIGSTOP)", []Status{Forbidden}},
	{"kill itself", "os.kill(os.getpid(), 9)", []Status{Forbidden}},
	{"queue a signal", "import ctypes; ctypes.CDLL(None).sigqueue(RUNNER, 9, 0)", []Status{Forbidden}},
	{"queue a signal to a thread", "import ctypes; ctypes.CDLL(None).syscall(297, RUNNER, RUNNER, 9, bytes(128))",
		[]Status{Forbidden}},
	{"owner of a pipe", "import fcntl; fcntl.fcntl(1, 8, RUNNER)", []Status{Failed}},
	{"owner of a pair of sockets", "import fcntl, socket; a, b = socket.socketpair(); fcntl.fcntl(a, 8, RUNNER); " +
		"fcntl.fcntl(a, 4, 0o20000); b.send(b'x')", []Status{Failed}},
	{"owner, extended", "import fcntl; fcntl.fcntl(1, 15, (1).to_bytes(4, 'little') + RUNNER.to_bytes(4, 'little'))",
		[]Status{Failed}},
	{"signal of a file", "import fcntl; fcntl.fcntl(1, 10, 9)", []Status{Failed}},
	{"owner by ioctl", "import fcntl; fcntl.ioctl(1, 0x8901, RUNNER.to_bytes(4, 'little'))", []Status{Failed}},
	{"group by ioctl", "import fcntl, socket; fcntl.ioctl(socket.socketpair()[0], 0x8902, RUNNER.to_bytes(4, 'little'))",
		[]Status{Failed}},
	{"lease", "import fcntl; fcntl.fcntl(open('x', 'w'), fcntl.F_SETLEASE, fcntl.F_WRLCK)", []Status{Failed}},
	{"signals of a folder", "import fcntl; fcntl.fcntl(os.open('.', 0), fcntl.F_NOTIFY, 2)", []Status{Failed}},
	{"outlive the runner", "import ctypes; assert ctypes.CDLL(None).prctl(1, 0, 0, 0, 0) == 0", []Status{Failed}},
	{"all signals ignored", "import signal\nfor n in range(1, 65):\n try: signal.signal(n, signal.SIG_IGN)\n except " +
		"(OSError, ValueError): pass\n1 / 0", []Status{Failed}},
	// Processes.
	{"daemon", "if os.fork() == 0: os.setsid()", []Status{Forbidden}},
	{"vfork", "import ctypes; ctypes.CDLL(None).vfork()", []Status{Forbidden}},
	{"spawn", "os.posix_spawn('/bin/true', ['true'], {})", []Status{Forbidden}},
	{"multiprocessing", "import multiprocessing; multiprocessing.Process(target=print).start()", []Status{Forbidden}},
	{"trace the runner", "import ctypes; ctypes.CDLL(None).ptrace(16, RUNNER, 0, 0)", []Status{Forbidden}},
	{"memory of the runner", "open('/proc/%d/mem' % RUNNER, 'r+b')", []Status{Failed}},
	{"memory of the runner by call", "import ctypes; ctypes.CDLL(None).process_vm_writev(RUNNER, 0, 0, 0, 0, 0)",
		[]Status{Forbidden}},
	{"descriptors of the runner", "open('/proc/%d/fd/1' % RUNNER, 'w').write('x')", []Status{Failed}},
	{"descriptor of the runner by call", "import ctypes; ctypes.CDLL(None).syscall(434, RUNNER, 0)", []Status{Forbidden}},
	{"own descriptors", "open('/proc/self/fd/1', 'w').write('x')", []Status{OK, Failed}},
	{"namespaces", "import ctypes; ctypes.CDLL(None).unshare(0x10000000)", []Status{Forbidden}},
	{"another root", "os.chroot('.')", []Status{Forbidden}},
	{"filter anew", "import ctypes; assert ctypes.CDLL(None).syscall(317, 1, 0, 0) == 0", []Status{Failed}},
	{"32-bit calls", "import ctypes, mmap; m = mmap.mmap(-1, 4096, prot=7); m.write(b'\\xb8\\x14\\0\\0\\0\\xcd\\x80\\xc3'); " +
		"ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()", []Status{Forbidden, Crash}},
	{"turn of Gyre", "os.sched_setscheduler(GYRE, os.SCHED_IDLE, os.sched_param(0))", []Status{Failed}},
	{"disk of Gyre", "import ctypes; assert ctypes.CDLL(None).syscall(251, 1, GYRE, 3 << 13) == 0", []Status{Failed}},
	{"priority", "os.setpriority(0, 0, 19)", []Status{Failed}},
	{"limits of the runner", "import resource as r; r.prlimit(RUNNER, r.RLIMIT_NOFILE, (1, 1))", []Status{Failed}},
	{"more time", "import resource as r; r.setrlimit(r.RLIMIT_CPU, (60, 60))", []Status{Failed}},
	{"shared memory", "import ctypes; assert ctypes.CDLL(None).shmat(0, 0, 0) != -1", []Status{Failed}},
	{"shared memory by name", "from multiprocessing import shared_memory as s; s.SharedMemory(create=True, size=9)",
		[]Status{Failed}},
	{"maps of memory", "import mmap\nx = []\nwhile True: x.append(mmap.mmap(-1, 1 << 24)); x[-1].write(b'x' * (1 << 24))",
		[]Status{Failed, Memory, Timeout}},
	{"regular expression", "import re; re.match('(a+)+$', 'a' * 64 + 'b')", []Status{Timeout}},
	{"huge power", "x = 9 ** 9 ** 9", []Status{Timeout, Memory}},
	// Sockets.
	{"raw socket", "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)", []Status{Forbidden}},
	{"netlink", "import socket; socket.socket(16, 3)", []Status{Forbidden}},
	{"name of a host", "import socket; socket.gethostbyname('localhost')", []Status{Forbidden, Failed}},
}

// These are kept in by other means where programs have no root folder of their own.
var hostileToFiles = []attack{
	{"10⁴ nested folders", "for _ in range(10000): os.mkdir('d'); os.chdir('d')", []Status{Disk, Failed, Timeout}},
	{"10⁶ folders", "for i in range(1000000): os.mkdir(str(i))", []Status{Disk, Failed, Timeout}},
	{"folders and gone", "for i in range(300): os.mkdir(str(i))", []Status{Disk}},
	{"folder that cannot be listed", "os.umask(0o777); os.mkdir('d'); os.umask(0); os.mkdir('e', 0o300)\n" +
		"for i in range(500): open('e/%d' % i, 'w').write('x' * 9000)", []Status{Disk, Failed, Timeout}},
	{"sparse file", "f = open('x', 'w'); f.truncate(1 << 40)", []Status{Disk, Failed}},
	{"sparse files", "for i in range(9): open(str(i), 'w').truncate(1 << 19)", []Status{Disk}},
	{"hard links", "open('x', 'w').write('x')\nfor i in range(1000): os.link('x', str(i))", []Status{Disk, Failed, Timeout}},
	{"symbolic links", "for i in range(1000): os.symlink('/', str(i))", []Status{Disk, Failed, Timeout}},
	{"circle of links", "os.symlink('.', 'a'); os.symlink('a', 'b'); 1 / 0", []Status{Failed}},
	{"named pipe", "os.mkfifo('x')", []Status{Failed}},
	{"device", "os.mknod('x', 0o60600, 1)", []Status{Failed}},
	{"mode of its folder", "os.chmod('.', 0)", []Status{Failed}},
	{"mode by descriptor", "os.fchmod(os.open('.', 0), 0)", []Status{Failed}},
	{"its own folder", "os.rename(os.getcwd(), '../gone')", []Status{Failed}},
	{"remove its own folder", "os.rmdir(os.getcwd())", []Status{Failed}},
	{"the next call's folder", "os.mkdir(os.path.join(os.environ['HOME'], '..', '1'))", []Status{Failed}},
	{"a file for the next call", "open(os.path.join(os.environ['TMPDIR'], '..', 'stdin'), 'w')", []Status{Failed}},
	{"beside its folder", "print(os.listdir('..'))", []Status{Failed}},
	{"watch a file outside", "import ctypes; l = ctypes.CDLL(None); assert l.inotify_add_watch(l.inotify_init(), " +
		"os.fsencode(OUTSIDE), 0xfff) >= 0", []Status{Failed}},
	{"inotify at all", "import ctypes; assert ctypes.CDLL(None).inotify_init1(0) >= 0", []Status{Failed}},
	{"handle of a file", "import ctypes; ctypes.CDLL(None).open_by_handle_at(-100, bytes(8), 0)", []Status{Forbidden}},
	{"change the installation", "open(os.__file__, 'a').write('x')", []Status{Failed}},
	{"stdin written", "os.write(0, b'x')", []Status{Failed}},
}

// No hostile program escapes, kills, or is a failure of the sandbox, and the call after it is answered.
func TestHostileProgramsAreTheProgramsFailure(t *testing.T) {
	s := confined(t)
	t.Run("machine", func(t *testing.T) { attackAll(t, s, hostile) })
	t.Run("files", func(t *testing.T) { attackAll(t, s, hostileToFiles) })
	if s.apart {
		t.Run("files without a root of their own", func(t *testing.T) { attackAll(t, inTheMachinesRoot(s), hostileToFiles) })
	}
}

func inTheMachinesRoot(s *Sandbox) *Sandbox {
	return &Sandbox{config: s.config, output: s.output, disk: s.disk, filter: s.filter, slots: s.slots}
}

func attackAll(t *testing.T, s *Sandbox, attacks []attack) {
	t.Setenv("TMPDIR", t.TempDir()) // what others leave in the machine's is not ours
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("precious"), 0o666); err != nil {
		t.Fatal(err)
	}
	names := strings.NewReplacer("GYRE", strconv.Itoa(os.Getpid()), "RUNNER", "os.getppid()", "OUTSIDE",
		strconv.Quote(outside))
	t.Cleanup(func() {
		if text, err := os.ReadFile(outside); err != nil || string(text) != "precious" {
			t.Errorf("the file outside holds %q, %v", text, err)
		}
		if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "gyre-sandbox-*")); len(left) > 0 {
			t.Errorf("scratch folders are left: %v", left)
		}
	})
	for _, c := range attacks {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if strings.Contains(c.program, "syscall(") && runtime.GOARCH != "amd64" {
				t.Skip("the numbers of system calls are amd64's")
			}
			begin := time.Now()
			// The second call is harmless: it must not notice the first.
			call := Call{Stdin: "go\n"}
			if strings.HasPrefix(c.name, "function") {
				call.Function = "f"
			}
			program := "import os, sys, json\nif sys.stdin.readline():\n" + "  " +
				strings.ReplaceAll(names.Replace(c.program), "\n", "\n  ") + "\nelse:\n  print('fine', os.listdir())"
			got := run(t, s, Job{Program: program, Calls: []Call{call, {}}})
			if !slices.Contains(c.want, got[0].Status) {
				t.Errorf("%s: %.200s, want %v", got[0].Status, got[0].Error, c.want)
			}
			if got[1].Status != OK || got[1].Stdout != "fine []\n" {
				t.Errorf("the call after it: %.200s", got[1])
			}
			if d := time.Since(begin); d > 20*time.Second {
				t.Errorf("it took %s", d)
			}
		})
	}
}

// A program sees the Python installation and its folder, and cannot tell what else there is.
func TestNothingElseExists(t *testing.T) {
	s := confined(t)
	if !s.apart {
		t.Skip("the kernel gives no user namespaces here")
	}
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	got := run(t, s, Job{Program: "import os\nfor p in (" + strconv.Quote(outside) + ", '/etc/passwd', '/proc/self', " +
		"'/home', '/var', '/sys'): print(os.path.lexists(p), os.access(p, 0))\nprint(os.getcwd(), os.path.exists(" +
		"os.__file__), open('/dev/null').read())"})
	if want := strings.Repeat("False False\n", 6) + "/box True \n"; got[0].Stdout != want {
		t.Errorf("%+v, want %s", got[0], want)
	}
}

// A runner that is killed, or hangs, is the program's doing: nothing else in it can fail so.
func TestRunnerThatEnds(t *testing.T) {
	s := confined(t)
	pass := []Call{{Stdin: "1"}, {Stdin: "2"}}
	for said, want := range map[string]int{`{"status": "ok"}`: 1, "": 0, `{"status": "ok"}{"status": "ok"`: 1} {
		all := outcomes(strings.NewReader(said), pass)
		if len(all) != want {
			t.Errorf("%q: %d outcomes, want %d", said, len(all), want)
		}
		all = lost(all, pass, Outcome{Status: Crash})
		if len(all) != 2 || all[1].Status != Crash {
			t.Errorf("%q: %+v", said, all)
		}
	}
	trusted := inTheMachinesRoot(s)
	trusted.filter = nil
	got := run(t, trusted, Job{Program: "import os\nif input() == '2': os.kill(os.getppid(), 9)", Calls: pass})
	if len(got) != 2 || got[0].Status != OK || got[1].Status != Crash || got[1].Error != "the runner was killed" {
		t.Errorf("%+v", got)
	}
}
