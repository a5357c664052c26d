package child

import "syscall"

// Attributes put a process into a group of its own, so that Ctrl-C reaches its parent alone, which tells it when to
// end; and let it end with its parent, so that one that is killed leaves nothing behind. The signal for that is sent
// when the thread that started the process ends: whoever starts it keeps that thread ([runtime.LockOSThread]) until
// it has waited for the process.
func Attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
