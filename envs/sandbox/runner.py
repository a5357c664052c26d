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

BOX = "/box"  # the program's folder in a root of its own
THREADS = 256  # of a program


def own_root(root):
    """A tree of folders that holds the Python installation and nothing else of this machine."""
    mount("tmpfs", root, "tmpfs", 0, "mode=755")
    for path in READABLE + ["/dev/null"]:
        target = root + path
        if not os.path.exists(path) or os.path.exists(target):
            continue
        os.makedirs(target if os.path.isdir(path) else os.path.dirname(target), exist_ok=True)
        if not os.path.isdir(path):
            open(target, "w").close()
        mount(path, target, None, MS_BIND | MS_REC, None)
    os.mkdir(root + BOX)


def lock_up(job, walls, folder, runner):
    """The last thing that happens in a child before the program."""
    limits = job["limits"]
    if job.get("root"):
        os.chroot(job["root"])
    os.chdir(folder)
    if walls:
        drop_capabilities()
        confine_files(folder)
    for what, most in (
        (resource.RLIMIT_AS, limits["memory"]),
        (resource.RLIMIT_FSIZE, limits["disk"]),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (limits["seconds"], limits["seconds"] + 1))  # SIGXCPU, then SIGKILL
    checked(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "pdeathsig")
    if os.getppid() != runner:
        os._exit(1)
    if walls:
        checked(libc.prctl(PR_SET_SECCOMP, 2, ctypes.byref(walls), 0, 0), "seccomp")


def execute(job, call, answer):
    """Runs the program in the child and returns its exit status."""
    import ast

    printed = sys.stdout  # the program may put another in its place
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
            owner = owner() if hasattr(owner, call["function"]) else None
            function = getattr(owner, call["function"]) if owner is not None else space[call["function"]]
            value = function(*call.get("args") or [])
            os.write(answer, json.dumps({"value": value}, allow_nan=False).encode())
        return 0
    except MemoryError:
        os.write(answer, b'{"memory": true}')
        return 1
    except SystemExit as stop:
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
        text = type(problem).__name__ + ": " + str(problem)[:500] + (" (line %d)" % line if line else "")
        os.write(answer, json.dumps({"error": text}).encode())
        return 1
    finally:
        for stream in (sys.stdout, printed):
            try:
                stream.flush()
            except BaseException:  # it is closed, or the program's own
                pass


def child(job, call, walls, folder, pipes, runner):
    """Locks itself up and runs the program. What it says before the program starts is the sandbox's word: it has
    closed that pipe when the program starts."""
    leave, status = os._exit, 1
    try:
        for target, source in enumerate(pipes):
            os.dup2(source, target)
        os.closerange(len(pipes), 1 << 16)
        os.environ["HOME"] = os.environ["TMPDIR"] = folder
        sys.stdin = open(0, encoding="utf-8", errors="replace", closefd=False)
        line_by_line = 1 if job.get("echo") else -1  # so that a session shows what a stopped program has printed
        sys.stdout = open(1, "w", line_by_line, encoding="utf-8", errors="replace", closefd=False)
        sys.stderr = open(os.devnull, "w")
        sys.argv = ["program.py"]
        sys.setrecursionlimit(100000)
        lock_up(job, walls, folder, runner)
    except BaseException as problem:
        os.write(4, repr(problem).encode())
        leave(1)
    os.close(4)
    try:
        status = execute(job, call, 3)
    finally:  # whatever the program has changed in this interpreter
        leave(status)


def disk_use(folder, most):
    """Bytes of what lies in a folder, a block for each name. Stops looking where that is more than allowed."""
    total, folders = 0, [folder]
    while folders and total <= most:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    total += 4096 + entry.stat(follow_symlinks=False).st_size
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    if total > most:
                        break
        except FileNotFoundError:
            pass  # it is gone
        except OSError:
            return most + 1  # too deep to look into
    return total


def empty(folder):
    """Removes a folder of any depth: each folder in it is first moved beside it."""
    folders, moved = [folder], 0
    try:
        while folders:
            for entry in list(os.scandir(folders[-1])):
                if entry.is_dir(follow_symlinks=False):
                    os.chmod(entry, 0o700)
                    moved += 1
                    folders.insert(0, "%s.%d" % (folder, moved))
                    os.rename(entry, folders[0])
                else:
                    os.unlink(entry)
            os.rmdir(folders.pop())
    except OSError:
        pass  # a process that a trusted program has left writes into it; the rest goes with the job


def threads(pid):
    try:
        return os.stat("/proc/%d/task" % pid).st_nlink - 2
    except OSError:
        return 0


def watch(pid, pipes, folder, limits):
    """Reads what a child writes until it ends, and ends it where it must. Returns what it has written into each pipe,
    its status and use of the machine, and why it was ended."""
    chunks, sizes = {fd: [] for fd in pipes}, dict.fromkeys(pipes, 0)
    end, look, verdict, done = time.monotonic() + limits["clock"], 0, None, 0
    with selectors.DefaultSelector() as events:
        for fd in pipes:
            events.register(fd, selectors.EVENT_READ)
        while not done and not verdict:
            # Both pipes may be closed by a program that goes on.
            for key, _ in events.select(max(0, min(end - time.monotonic(), 0.05 if events.get_map() else 0.002))):
                data = os.read(key.fd, 1 << 16)
                if not data:
                    events.unregister(key.fd)
                sizes[key.fd] += len(data)
                if sizes[key.fd] > limits["output"]:
                    verdict = "output"
                    break
                chunks[key.fd].append(data)
            if not events.get_map():
                done, status, usage = os.wait4(pid, os.WNOHANG)
            now = time.monotonic()
            if verdict or now < look and not done:
                continue
            look = now + 0.05
            if disk_use(folder, limits["disk"]) > limits["disk"]:
                verdict = "disk"
            elif done:
                break
            elif now >= end or os.getppid() != ASKED_BY:  # whoever asked is gone
                verdict = "timeout"
            elif threads(pid) > THREADS:
                verdict = "forbidden"
    if not done:
        os.kill(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
    return [b"".join(chunks[fd]).decode("utf-8", "replace") for fd in pipes], status, usage, verdict


def run(job, call, walls, number):
    """Runs one call and returns its outcome. What the program itself says of its end is passed on unread."""
    limits = job["limits"]
    root = job.get("root") or ""
    folder = BOX if root else os.path.join(job["scratch"], str(number))
    if root:  # twice the room, so that it is this program which says that there is no more
        most = 2 * limits["disk"]
        mount("tmpfs", root + folder, "tmpfs", 0, "mode=700,size=%d,nr_inodes=%d" % (most, most >> 12))
    else:
        os.mkdir(folder)
    with open(os.path.join(job["scratch"], "stdin"), "w", encoding="utf-8") as stdin:
        stdin.write(call.get("stdin") or "")
    (out_r, out_w), (ans_r, ans_w), (ready_r, ready_w) = os.pipe(), os.pipe(), os.pipe()
    with open(stdin.name) as stdin:
        runner = os.getpid()
        pid = os.fork()
        if pid == 0:
            child(job, call, walls, folder, (stdin.fileno(), out_w, out_w, ans_w, ready_w), runner)
    for fd in (out_w, ans_w, ready_w):
        os.close(fd)
    (stdout, answer), status, usage, verdict = watch(pid, (out_r, ans_r), root + folder, limits)
    problem = os.read(ready_r, 1 << 16)
    for fd in (out_r, ans_r, ready_r):
        os.close(fd)
    if root:
        checked(libc.umount2(os.fsencode(root + folder), MNT_DETACH), "umount")
    else:
        empty(folder)
    if problem:
        raise RuntimeError("the child could not be locked up: " + problem.decode("utf-8", "replace"))
    outcome = {"stdout": stdout, "answer": answer, "status": "ok"}
    if verdict:
        outcome["status"] = verdict
    elif os.WIFSIGNALED(status):
        names = {signal.SIGSYS: "forbidden", signal.SIGXCPU: "timeout", signal.SIGXFSZ: "disk"}
        killed_by = os.WTERMSIG(status)
        outcome["status"] = names.get(killed_by, "crash")
        if killed_by == signal.SIGKILL and usage.ru_utime + usage.ru_stime >= 0.8 * limits["seconds"]:
            outcome["status"] = "timeout"  # it ignored SIGXCPU
        outcome["error"] = "killed by signal %d" % killed_by
    elif status:
        outcome["status"], outcome["error"] = "error", "exit status %d" % os.WEXITSTATUS(status)
    return outcome


def main():
    job = json.load(sys.stdin)
    if job.get("root"):
        own_root(job["root"])
    walls = Filter(job["filter"]) if job.get("filter") else None
    for number, call in enumerate(job["calls"]):
        print(json.dumps(run(job, call, walls, number)), flush=True)


ASKED_BY = os.getppid()
main()
