package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// What the filter does with a system call.
const (
	fiosetown = 0x8901 // FIOSETOWN, the same on both architectures

	allow  = unix.SECCOMP_RET_ALLOW
	kill   = unix.SECCOMP_RET_KILL_PROCESS
	deny   = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	absent = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
)

// killed are the system calls that a program is killed for: they reach the network, other processes or the kernel.
var killed = []uint32{
	unix.SYS_SOCKET, unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_TGKILL,
	unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_GETFD, unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV,
	unix.SYS_PROCESS_VM_WRITEV, unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2,
	unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN,
	unix.SYS_USERFAULTFD, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_IO_URING_SETUP,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_REBOOT, unix.SYS_SWAPON,
	unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO,
}

// denied are those that fail: libraries try them and go on, or Landlock does not know them.
var denied = []uint32{
	unix.SYS_SETSID, unix.SYS_SETPGID, unix.SYS_SETRLIMIT, unix.SYS_MEMFD_CREATE, unix.SYS_MEMFD_SECRET,
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV,
	unix.SYS_MSGCTL, unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SEMCTL, unix.SYS_MQ_OPEN,
	unix.SYS_INOTIFY_INIT1, unix.SYS_INOTIFY_ADD_WATCH, unix.SYS_FANOTIFY_INIT,
	unix.SYS_TRUNCATE, unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2,
	unix.SYS_FCHOWN, unix.SYS_FCHOWNAT, unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR,
	unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR, unix.SYS_UTIMENSAT, unix.SYS_SECCOMP,
	unix.SYS_SCHED_SETAFFINITY, unix.SYS_SETPRIORITY, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETPARAM,
	unix.SYS_SCHED_SETATTR, unix.SYS_IOPRIO_SET, unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES, unix.SYS_SYNC,
}

// systemCalls assembles the filter as instructions (code, jump if true, jump if false, operand).
func systemCalls() ([][4]uint32, error) {
	arch, ok := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	if !ok {
		return nil, fmt.Errorf("%w, on amd64 or arm64", ErrNoWalls)
	}
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		least  = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		bit    = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		result = unix.BPF_RET | unix.BPF_K

		number = 0 // offsets in struct seccomp_data, on little-endian machines
		kind   = 4
		args   = 16
		x32    = 0x40000000
	)
	code := [][4]uint32{
		{load, 0, 0, kind}, {equal, 1, 0, arch}, {result, 0, 0, kill},
		{load, 0, 0, number},
		{least, 0, 1, x32}, {result, 0, 0, kill}, // another table of calls on amd64; no such numbers elsewhere
	}
	answer := func(calls []uint32, what uint32) {
		for _, call := range calls {
			code = append(code, [4]uint32{equal, 0, 1, call}, [4]uint32{result, 0, 0, what})
		}
	}
	answer(killed, kill)
	answer(killedHere, kill)
	answer(denied, deny)
	answer(deniedHere, deny)
	answer([]uint32{unix.SYS_CLONE3}, absent) // its flags cannot be seen; libraries then use clone
	// argument answers a call by the low half of its argument at an index, which is all that the kernel reads of it.
	argument := func(call, index, what uint32, values ...uint32) {
		code = append(code, [4]uint32{equal, 0, uint32(2*len(values) + 2), call}, // else the next rule
			[4]uint32{load, 0, 0, args + 8*index})
		for _, value := range values {
			code = append(code, [4]uint32{equal, 0, 1, value}, [4]uint32{result, 0, 0, what})
		}
		code = append(code, [4]uint32{result, 0, 0, allow})
	}
	// Signals of files, to whomever they name, and input that a terminal is told was typed.
	argument(unix.SYS_FCNTL, 1, deny, unix.F_SETOWN, unix.F_SETOWN_EX, unix.F_SETSIG, unix.F_SETLEASE, unix.F_NOTIFY)
	argument(unix.SYS_IOCTL, 1, deny, fiosetown, unix.SIOCSPGRP, unix.TIOCSTI, unix.TIOCLINUX)
	argument(unix.SYS_PRCTL, 0, deny, unix.PR_SET_PDEATHSIG)
	code = append(code,
		// clone makes threads only
		[4]uint32{equal, 0, 4, unix.SYS_CLONE}, [4]uint32{load, 0, 0, args}, [4]uint32{bit, 0, 1, unix.CLONE_THREAD},
		[4]uint32{result, 0, 0, allow}, [4]uint32{result, 0, 0, kill},
		// prlimit64 reads limits only: its third argument, the new limit, is null
		[4]uint32{equal, 0, 6, unix.SYS_PRLIMIT64}, [4]uint32{load, 0, 0, args + 16}, [4]uint32{equal, 0, 3, 0},
		[4]uint32{load, 0, 0, args + 20}, [4]uint32{equal, 0, 1, 0}, [4]uint32{result, 0, 0, allow},
		[4]uint32{result, 0, 0, deny},
		[4]uint32{result, 0, 0, allow},
	)
	return code, nil
}

// apart are the system calls that fail in a session, whose programs may start others: they reach the kernel, other
// processes' memory, or what a namespace is made of.
var apart = []uint32{
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD, unix.SYS_UNSHARE,
	unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_OPEN_TREE,
	unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSMOUNT, unix.SYS_FSCONFIG, unix.SYS_MOUNT_SETATTR,
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_KEYCTL,
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_IO_URING_SETUP, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE,
	unix.SYS_KEXEC_LOAD, unix.SYS_REBOOT, unix.SYS_SWAPON,
}

// sessionCalls assembles the filter of a session, as systemCalls does that of a program.
func sessionCalls() ([][4]uint32, error) {
	arch, ok := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	if !ok {
		return nil, fmt.Errorf("%w, on amd64 or arm64", ErrNoWalls)
	}
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		least  = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		bit    = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		result = unix.BPF_RET | unix.BPF_K

		namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
			unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
	)
	code := [][4]uint32{
		{load, 0, 0, 4}, {equal, 1, 0, arch}, {result, 0, 0, kill}, // offsets as in systemCalls
		{load, 0, 0, 0}, {least, 0, 1, 0x40000000}, {result, 0, 0, kill},
	}
	for _, call := range apart {
		code = append(code, [4]uint32{equal, 0, 1, call}, [4]uint32{result, 0, 0, deny})
	}
	return append(code,
		[4]uint32{equal, 0, 1, unix.SYS_CLONE3}, [4]uint32{result, 0, 0, absent}, // its flags cannot be seen
		[4]uint32{equal, 0, 3, unix.SYS_CLONE}, [4]uint32{load, 0, 0, 16}, [4]uint32{bit, 0, 1, namespaces},
		[4]uint32{result, 0, 0, deny}, [4]uint32{result, 0, 0, allow}), nil
}

// separate gives a session namespaces of its own: users, mounts, processes and, without network, interfaces.
func separate(command *exec.Cmd, network bool) {
	isolate(command, true)
	command.Cancel = nil
	command.SysProcAttr.Cloneflags |= unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	if !network {
		command.SysProcAttr.Cloneflags |= unix.CLONE_NEWNET
	}
}

// isolate makes a command's end the end of its children too, and lets it mount file systems where that is asked.
// In the namespace of its own it is root, which may do no more outside than this process may.
func isolate(command *exec.Cmd, apart bool) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	if apart {
		root := func(id int) []syscall.SysProcIDMap { return []syscall.SysProcIDMap{{HostID: id, Size: 1}} }
		command.SysProcAttr.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS
		command.SysProcAttr.UidMappings, command.SysProcAttr.GidMappings = root(os.Getuid()), root(os.Getgid())
	}
}
