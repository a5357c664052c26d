package sandbox

import "golang.org/x/sys/unix"

// The older calls, which arm64 does not have.
var (
	killedHere = []uint32{unix.SYS_FORK, unix.SYS_VFORK}
	deniedHere = []uint32{unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_UTIME, unix.SYS_UTIMES,
		unix.SYS_FUTIMESAT, unix.SYS_INOTIFY_INIT}
)
