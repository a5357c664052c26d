package ranks

import "syscall"

// attributes of a rank's process: a group of its own, so that Ctrl-C reaches the launcher alone, and an end with the launcher's.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
