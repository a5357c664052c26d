"""What the walls of the sandbox are made of. It stands before runner.py and session.py, which say how they are put up."""
import ctypes
import os
import sys

libc = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 22, 38
MS_BIND, MS_REC, MNT_DETACH = 1 << 12, 1 << 14, 2
LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
MAKE_DEVICES = 1 << 6 | 1 << 9 | 1 << 10 | 1 << 11  # character and block devices, sockets, pipes
TRUNCATE = 1 << 14
READABLE = [sys.prefix, sys.base_prefix, sys.exec_prefix, "/usr", "/lib", "/lib64"]
READABLE += ["/etc/ld.so.cache", "/etc/localtime", "/dev/urandom"]
READABLE = sorted({*READABLE, *map(os.path.realpath, READABLE)})  # folders before what lies in them


def checked(result, what):
    if result < 0:
        raise OSError(ctypes.get_errno(), what + ": " + os.strerror(ctypes.get_errno()))
    return result


def syscall(what, number, *args):
    return checked(libc.syscall(ctypes.c_long(number), *args), what)


def confine_files(folder):
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

    for path in READABLE:
        allow(path, EXECUTE | READ_FILE | READ_DIR)
    allow("/dev/null", READ_FILE | WRITE_FILE)
    allow(folder, rights & ~MAKE_DEVICES & ~EXECUTE)
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


def mount(what, where, kind, flags, options):
    texts = [None if text is None else os.fsencode(text) for text in (what, where, kind, options)]
    checked(libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3]), "mount " + where)
