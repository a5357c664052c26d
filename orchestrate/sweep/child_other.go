//go:build !linux

package sweep

import "syscall"

// attributes put a run into a process group of its own, so that Ctrl-C reaches it through the study alone. A run that outlives a killed study is
// waited for by the next one.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
