"""Runs one job of the sandbox; see doc.go. Reads it as JSON from stdin, writes one JSON line per call to stdout.

The parent keeps the clock and never executes a line of the program. Each call gets a child that is locked up first.
"""
import ctypes
import json
import os
import resource
import selectors
import signal
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 22, 38
LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
MAKE_DEVICES = 1 << 6 | 1 << 9 | 1 << 10 | 1 << 11  # character and block devices, sockets, pipes
TRUNCATE = 1 << 14


def checked(result, what):
    if result < 0:
        raise OSError(ctypes.get_errno(), what + ": " + os.strerror(ctypes.get_errno()))
    return result


def syscall(what, number, *args):
    return checked(libc.syscall(ctypes.c_long(number), *args), what)


def confine_files(scratch):
    """Landlock: from here on this process and its children see little of the file system."""
    abi = libc.syscall(ctypes.c_long(LANDLOCK_CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint(1))
    if abi < 1:
        raise OSError("Landlock is not available (" + os.strerror(ctypes.get_errno()) + ")")
    rights = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(abi, 16)) - 1
    attributes = [rights]
    if abi >= 4:
        attributes.append(3)  # bind and connect TCP
    if abi >= 6:
        attributes.append(3)  # abstract sockets and signals
    raw = (ctypes.c_uint64 * len(attributes))(*attributes)
    ruleset = syscall("landlock_create_ruleset", LANDLOCK_CREATE_RULESET, raw, ctypes.c_size_t(ctypes.sizeof(raw)), ctypes.c_uint(0))

    def allow(path, access):
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            return  # not on this machine
        if not os.path.isdir(path):
            access &= EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE
        rule = (access & rights).to_bytes(8, sys.byteorder) + fd.to_bytes(4, sys.byteorder)
        syscall("landlock_add_rule", LANDLOCK_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint(0))
        os.close(fd)

    readable = {sys.prefix, sys.base_prefix, sys.exec_prefix, "/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/dev/urandom"}
    for path in readable:
        allow(path, EXECUTE | READ_FILE | READ_DIR)
    allow("/dev/null", READ_FILE | WRITE_FILE)
    allow(scratch, rights & ~MAKE_DEVICES & ~EXECUTE)
    checked(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    syscall("landlock_restrict_self", LANDLOCK_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint(0))
    os.close(ruleset)


def drop_capabilities():
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    checked(libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")


class Filter(ctypes.Structure):
    """struct sock_fprog over the instructions that the caller has assembled."""

    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]

    def __init__(self, code):
        raw = b"".join(op.to_bytes(2, sys.byteorder) + bytes([jt, jf]) + k.to_bytes(4, sys.byteorder) for op, jt, jf, k in code)
        self.code = ctypes.create_string_buffer(raw, len(raw))
        super().__init__(len(code), ctypes.cast(self.code, ctypes.c_void_p))


def lock_up(job, walls):
    """The last thing that happens in a child before the program."""
    limits = job["limits"]
    for what, most in (
        (resource.RLIMIT_AS, limits["memory"]),
        (resource.RLIMIT_FSIZE, limits["file"]),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (limits["seconds"], limits["seconds"] + 1))  # SIGXCPU, then SIGKILL
    checked(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "pdeathsig")
    if os.getppid() == 1:
        os._exit(1)
    if walls:
        checked(libc.prctl(PR_SET_SECCOMP, 2, ctypes.byref(walls), 0, 0), "seccomp")


def execute(job, call, answer):
    """Runs the program in the child and returns its exit status."""
    import ast

    space = {"__name__": "__main__", "__builtins__": __builtins__}
    try:
        tree = ast.parse(job["program"], "program.py")
        last = None
        if job.get("echo") and tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)
        exec(compile(tree, "program.py", "exec"), space)
        if last is not None:
            value = eval(compile(last, "program.py", "eval"), space)
            if value is not None:
                print(repr(value))
        if call.get("function"):
            owner = space.get("Solution")
            function = getattr(owner(), call["function"]) if hasattr(owner, call["function"]) else space[call["function"]]
            value = function(*call.get("args") or [])
            os.write(answer, json.dumps({"value": value}).encode())
        sys.stdout.flush()
        return 0
    except MemoryError:
        os.write(answer, b'{"memory": true}')
        return 1
    except SystemExit as stop:
        sys.stdout.flush()
        return stop.code & 255 if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException as problem:
        if isinstance(problem, KeyError) and call.get("function") and problem.args == (call["function"],):
            problem = NameError("the program defines no function " + call["function"])
        line = None
        at = problem.__traceback__
        while at:
            if at.tb_frame.f_code.co_filename == "program.py":
                line = at.tb_lineno
            at = at.tb_next
        sys.stdout.flush()
        text = type(problem).__name__ + ": " + str(problem)[:500] + (" (line %d)" % line if line else "")
        os.write(answer, json.dumps({"error": text}).encode())
        return 1


def child(job, call, walls, folder, stdin, stdout, answer):
    try:
        os.chdir(folder)
        for source, target in ((stdin, 0), (stdout, 1), (stdout, 2), (answer, 3)):
            os.dup2(source, target)
        os.closerange(4, 256)
        sys.stdin = open(0, encoding="utf-8", errors="replace", closefd=False)
        line_by_line = 1 if job.get("echo") else -1  # so that a session shows what a stopped program has printed
        sys.stdout = open(1, "w", line_by_line, encoding="utf-8", errors="replace", closefd=False)
        sys.stderr = open(os.devnull, "w")
        sys.argv = ["program.py"]
        sys.setrecursionlimit(100000)
        lock_up(job, walls)
        os._exit(execute(job, call, 3))
    except BaseException as problem:
        os.write(3, json.dumps({"broken": repr(problem)}).encode())
        os._exit(1)


def disk_use(folder):
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += 4096 + os.lstat(os.path.join(path, name)).st_size
            except OSError:
                pass
    return total


def run(job, call, walls, folder):
    """Runs one call and returns its outcome."""
    limits = job["limits"]
    os.mkdir(folder)
    with open(os.path.join(folder, ".stdin"), "w+", encoding="utf-8") as stdin:
        stdin.write(call.get("stdin") or "")
        stdin.seek(0)
        os.unlink(stdin.name)
        out_r, out_w = os.pipe()
        ans_r, ans_w = os.pipe()
        pid = os.fork()
        if pid == 0:
            child(job, call, walls, folder, stdin.fileno(), out_w, ans_w)
    os.close(out_w)
    os.close(ans_w)
    chunks = {out_r: [], ans_r: []}
    sizes = {out_r: 0, ans_r: 0}
    end, verdict = time.monotonic() + limits["clock"], None
    with selectors.DefaultSelector() as events:
        for fd in chunks:
            events.register(fd, selectors.EVENT_READ)
        while events.get_map() and not verdict:
            for key, _ in events.select(max(0, min(end - time.monotonic(), 0.05))):
                data = os.read(key.fd, 1 << 16)
                if not data:
                    events.unregister(key.fd)
                sizes[key.fd] += len(data)
                if sizes[key.fd] > limits["output"]:
                    verdict = "output"
                    break
                chunks[key.fd].append(data)
            if time.monotonic() >= end:
                verdict = verdict or "timeout"
            elif disk_use(folder) > limits["disk"]:
                verdict = verdict or "disk"
            if os.getppid() == 1:  # whoever asked is gone
                verdict = "timeout"
    while not verdict:  # both pipes may be closed by a program that goes on
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if done:
            break
        if time.monotonic() >= end:
            verdict = "timeout"
        time.sleep(0.002)
    if verdict:
        os.kill(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
    os.close(out_r)
    os.close(ans_r)
    outcome = {"stdout": b"".join(chunks[out_r]).decode("utf-8", "replace"), "seconds": usage.ru_utime + usage.ru_stime}
    try:
        answer = json.loads(b"".join(chunks[ans_r]) or b"{}")
        if not isinstance(answer, dict):
            answer = {}
    except ValueError:
        answer = {}
    if "broken" in answer:
        raise RuntimeError("the child could not be locked up: " + str(answer["broken"]))
    if verdict:
        outcome["status"] = verdict
    elif os.WIFSIGNALED(status):
        names = {signal.SIGSYS: "forbidden", signal.SIGXCPU: "timeout", signal.SIGXFSZ: "disk"}
        killed_by = os.WTERMSIG(status)
        outcome["status"] = names.get(killed_by, "crash")
        if killed_by == signal.SIGKILL and usage.ru_utime + usage.ru_stime >= 0.8 * limits["seconds"]:
            outcome["status"] = "timeout"  # it ignored SIGXCPU
        outcome["error"] = "killed by " + signal.Signals(killed_by).name
    elif answer.get("memory"):
        outcome["status"] = "memory"
    elif status:
        outcome["status"], outcome["error"] = "error", str(answer.get("error", "exit status %d" % os.WEXITSTATUS(status)))
    else:
        outcome["status"] = "ok"
        if "value" in answer:
            outcome["value"] = answer["value"]
    return outcome


def main():
    job = json.load(sys.stdin)
    walls = None
    if job.get("filter"):
        drop_capabilities()
        confine_files(job["scratch"])
        walls = Filter(job["filter"])
    for number, call in enumerate(job["calls"]):
        outcome = run(job, call, walls, os.path.join(job["scratch"], str(number)))
        print(json.dumps(outcome), flush=True)


main()
