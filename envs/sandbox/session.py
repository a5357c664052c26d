"""Keeps a session of the sandbox; see session.go. Reads a request as JSON per line from stdin, and answers in a line.

It is the first process of a namespace of its own: what is in there ends with it, and it ends with its standard input.
"""
import base64
import json
import resource
import selectors
import shlex
import signal
import stat
import time

MS_NOSUID, MS_NODEV, MS_REMOUNT = 1 << 1, 1 << 2, 1 << 5
PIVOT_ROOT, MOUNT_SETATTR = {"x86_64": 155, "aarch64": 41}.get(os.uname().machine, -1), 442
AT_FDCWD, AT_RECURSIVE, RDONLY = -100, 0x8000, 1
PR_SET_DUMPABLE = 4
PROCESSES = 256  # of a session
KEPT = 1 << 18  # bytes of an output: as many of its beginning as of its end
TESTS = "/tests", "/logs"  # are made anew before the tests


def bind(path, target):
    """Shows a file or folder of this machine, which cannot be written."""
    os.makedirs(target if os.path.isdir(path) else os.path.dirname(target), exist_ok=True)
    if not os.path.isdir(path):
        open(target, "a").close()
    mount(path, target, None, MS_BIND | MS_REC, None)
    return target


def lock_mount(target):
    attributes = RDONLY.to_bytes(8, sys.byteorder) + bytes(24)
    syscall("mount_setattr " + target, MOUNT_SETATTR, ctypes.c_int(AT_FDCWD), os.fsencode(target),
            ctypes.c_uint(AT_RECURSIVE), attributes, ctypes.c_size_t(len(attributes)))


def own_root(root, job):
    """Moves this process into a tree of files that holds programs of this machine and nothing else of it."""
    mount(None, "/", None, MS_REC | 1 << 18, None)  # private: nothing of this is seen outside
    limit = "mode=755,size=%d,nr_inodes=%d" % (job["disk"], job["disk"] >> 12)
    mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, limit)
    for path in ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/usr"):
        if os.path.islink(path):
            os.symlink(os.readlink(path), root + path)
        elif os.path.isdir(path):
            lock_mount(bind(path, root + path))
    shown = ["/etc/alternatives", "/etc/ld.so.cache", "/etc/ssl", "/etc/ca-certificates", "/etc/localtime"]
    for path in shown + [sys.base_prefix, sys.prefix] + (["/etc/resolv.conf", "/etc/hosts"] if job["network"] else []):
        if os.path.exists(path) and not os.path.exists(root + path):
            lock_mount(bind(path, root + path))
    for name, text in (("passwd", "root:x:0:0:root:/root:/bin/bash\n"), ("group", "root:x:0:\n")):
        with open(root + "/etc/" + name, "w") as file:
            file.write(text)
    for path in ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"):
        bind(path, root + path)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink("/proc/self/fd/%d" % number, root + "/dev/" + name)
    os.symlink("/proc/self/fd", root + "/dev/fd")
    for path in ("proc", "root", "home", "tmp", "var/tmp", "run", "dev/shm", "old"):
        os.makedirs(root + "/" + path, exist_ok=True)
    for path in ("/tmp", "/var/tmp", "/dev/shm"):
        os.chmod(root + path, 0o1777)
    mount("proc", root + "/proc", "proc", MS_NOSUID | MS_NODEV, None)
    syscall("pivot_root", PIVOT_ROOT, os.fsencode(root), os.fsencode(root + "/old"))
    os.chdir("/")
    checked(libc.umount2(b"/old", MNT_DETACH), "umount of the machine's files")
    os.rmdir("/old")


def place(files):
    for file in files:
        os.makedirs(os.path.dirname(file["path"]), exist_ok=True)
        with open(file["path"], "wb") as out:
            out.write(base64.b64decode(file["content"]))
        os.chmod(file["path"], file["mode"])


def spawn(job, folder, streams, act):
    """Starts a process behind the walls, with these streams as its descriptors from 0 on (None: not open)."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        held = [None if stream is None else os.dup2(stream, 100 + target) for target, stream in enumerate(streams)]
        for target, stream in enumerate(held):
            if stream is not None:
                os.dup2(stream, target)
            else:
                os.closerange(target, target + 1)
        os.closerange(len(held), 1 << 16)
        for number in (signal.SIGPIPE, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        try:
            os.chdir(folder)
        except OSError:
            os.chdir("/")
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.nice(5)  # who counts the processes comes first
        if job["memory"]:
            resource.setrlimit(resource.RLIMIT_AS, (job["memory"], job["memory"]))
        drop_capabilities()
        checked(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
        if job["filter"]:
            checked(libc.prctl(PR_SET_SECCOMP, 2, ctypes.byref(Filter(job["filter"])), 0, 0), "seccomp")
        act()
    except BaseException as problem:
        os.write(2, ("the sandbox could not start it: %r\n" % problem).encode())
    finally:
        os._exit(126)


def end_all():
    """Ends every process but this one."""
    try:
        while True:
            try:
                os.kill(-1, signal.SIGKILL)
            except ProcessLookupError:
                pass
            os.waitpid(-1, 0)
            while os.waitpid(-1, os.WNOHANG)[0]:  # of thousands, each kill would look at all
                pass
    except ChildProcessError:
        pass


class Kept:
    """The beginning and the end of an output."""

    def __init__(self):
        self.head, self.tail, self.lost = b"", b"", 0

    def add(self, data):
        room = KEPT - len(self.head)
        self.head, self.tail = self.head + data[:room], self.tail + data[room:]
        over = max(0, len(self.tail) - KEPT)
        self.lost, self.tail = self.lost + over, self.tail[over:]

    def text(self):
        cut = b"\n[%d bytes left out]\n" % self.lost if self.lost else b""
        return (self.head + cut + self.tail).decode("utf-8", "replace")


def follow(pid, output, control, end):
    """Reads what a process writes until it ends, says that it is done, or has no time left. Returns the output, why it
    is over and its word: the exit status, or what it wrote to the control pipe."""
    kept, said, over = Kept(), b"", None
    with selectors.DefaultSelector() as events:
        for fd in filter(None, (0, output, control)):
            events.register(fd, selectors.EVENT_READ)
        while not over:
            for key, _ in events.select(0.05):
                if key.fd == 0:
                    os._exit(0)  # nothing is sent while something is done: whoever asked is gone
                data = os.read(key.fd, 1 << 16)
                if not data:
                    events.unregister(key.fd)
                elif key.fd == output:
                    kept.add(data)
                else:
                    said += data
            if b"\n" in said:
                over = "done"
                break
            while not over:
                try:
                    ended, status = os.waitpid(-1, os.WNOHANG)
                except ChildProcessError:
                    break
                if not ended:
                    break
                if ended == pid:
                    over, said = "exit", str(os.waitstatus_to_exitcode(status)).encode()
            if not over and time.monotonic() > end:
                over = "timeout"
            elif not over and sum(name.isdigit() for name in os.listdir("/proc")) > PROCESSES:
                over = "processes"
    os.set_blocking(output, False)
    try:
        while not kept.lost:  # what is in the pipe; a process in the background may write without end
            data = os.read(output, 1 << 16)
            if not data:
                break
            kept.add(data)
    except OSError:
        pass
    return kept.text(), over, said.decode("utf-8", "replace")


class Session:
    def __init__(self, job):
        self.job, self.folder, self.shell = job, job["folder"], None
        self.environment = {"HOME": "/root", "TMPDIR": "/tmp", "LANG": "C.UTF-8", "TERM": "dumb", "USER": "root"}
        self.environment["PATH"] = sys.prefix + "/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        self.environment["PYTHONDONTWRITEBYTECODE"] = "1"
        self.environment.update(job["environment"])
        os.makedirs(self.folder, exist_ok=True)
        place(job["files"])

    def exec(self, words, streams, environment):
        return spawn(self.job, self.folder, streams, lambda: os.execvpe(words[0], words, environment))

    def start(self):
        """Starts the shell. It takes a command per line from its standard input, and says on descriptor 9 when one is
        done, with what status and in which folder."""
        into, self.input = os.pipe()
        self.output, out = os.pipe()
        self.control, done = os.pipe()
        streams = [into, out, out] + [None] * 6 + [done]
        self.shell = self.exec(["bash", "--noprofile", "--norc"], streams, self.environment)
        for fd in (into, out, done):
            os.close(fd)

    def stop(self):
        end_all()
        if self.shell:
            for fd in (self.input, self.output, self.control):
                os.close(fd)
        self.shell = None

    def run(self, request):
        if not self.shell:
            self.start()
        line = "eval %s </dev/null\nbuiltin printf '%%s %%s\\n' \"$?\" \"$PWD\" >&9\n" % shlex.quote(request["command"])
        end = time.monotonic() + request["seconds"]
        os.set_blocking(self.input, False)
        with selectors.DefaultSelector() as events:  # a shell that was stopped does not read
            events.register(self.input, selectors.EVENT_WRITE)
            data = os.fsencode(line)
            while data and time.monotonic() < end:
                if events.select(0.05):
                    try:
                        data = data[os.write(self.input, data):]
                    except BlockingIOError:
                        pass
                    except BrokenPipeError:
                        break
        text, over, said = follow(self.shell, self.output, self.control, end)
        status = 0
        if over == "done":
            status, _, folder = said.partition("\n")[0].partition(" ")
            self.folder = folder or self.folder
        else:
            self.stop()
            status = said if over == "exit" else 0
        return {"output": text, "end": over, "status": int(status) if str(status).lstrip("-").isdigit() else 0}

    def file(self, request):
        """Lets a process behind the walls do something with a file."""
        out, write = os.pipe()
        none = os.open("/dev/null", os.O_RDWR)
        pid = spawn(self.job, self.folder, [none, write, write], lambda: file_action(request))
        os.close(write), os.close(none)
        text, over, status = follow(pid, out, None, time.monotonic() + 10)
        os.close(out)
        if over != "exit":
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            text, status = "it takes too long", "1"
        return {"output": text, "end": over, "status": int(status)}

    def test(self, request):
        """Ends what the session has left, puts the tests where they belong and lets them judge."""
        self.stop()
        for path in TESTS:
            if os.path.lexists(path):
                os.rename(path, "/" + os.urandom(16).hex())
            os.makedirs(path)
        os.makedirs("/logs/verifier")
        os.makedirs("/logs/agent")
        place(request["files"])
        home = "/logs/home"  # without what the session has put into its own
        os.makedirs(home)
        environment = {**self.environment, "HOME": home, "PYTHONNOUSERSITE": "1", **request["environment"]}
        self.folder = self.job["folder"]
        out, write = os.pipe()
        none = os.open("/dev/null", os.O_RDWR)
        pid = self.exec(request["command"], [none, write, write], environment)
        os.close(write), os.close(none)
        text, over, status = follow(pid, out, None, time.monotonic() + request["seconds"])
        os.close(out)
        end_all()
        found = {name: read_plain("/logs/verifier/" + name) for name in request["collect"]}
        return {"output": text, "end": over, "status": int(status or 0), "found": found}


def read_plain(path):
    """A small file that is no link; None: there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        return None
    with open(fd, "rb") as file:
        return file.read(1 << 20).decode("utf-8", "replace")


def file_action(request):
    status = 0
    try:
        path = request["path"]
        if request["action"] == "write":
            os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
            with open(path, "w", encoding="utf-8", newline="") as file:
                file.write(request["text"])
            answer = "written: %d characters" % len(request["text"])
        else:
            with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
                answer = file.read(KEPT)
            if request["action"] == "replace":
                found = answer.count(request["old"])
                if len(answer) == KEPT or found != 1:
                    raise ValueError("the text to replace stands %d times in the file, expected once" % found)
                with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
                    file.write(answer.replace(request["old"], request["text"]))
                answer = "replaced"
    except (OSError, ValueError) as problem:
        status, answer = 1, str(problem)
    data = os.fsencode(answer) if status == 0 else answer.encode("utf-8", "replace")
    while data:
        data = data[os.write(1, data):]
    os._exit(status)


def main():
    job = json.loads(sys.stdin.buffer.readline())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    checked(libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "dumpable")  # nobody in here looks into this process
    own_root(job["root"], job)
    session = Session(job)
    print(json.dumps({"output": "", "end": "done", "status": 0}), flush=True)
    for line in sys.stdin.buffer:
        request = json.loads(line)
        answer = {"run": session.run, "file": session.file, "test": session.test}[request.pop("do")](request)
        print(json.dumps(answer), flush=True)


main()
