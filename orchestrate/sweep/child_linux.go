package sweep

import "syscall"

// attributes put a run into a process group of its own, so that Ctrl-C reaches it through the study alone, and let it end with the study:
// a study that is killed must not leave runs behind that the next one would collide with. (The signal is sent when the thread that started the
// process ends, which is why process.start locks it.)
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
