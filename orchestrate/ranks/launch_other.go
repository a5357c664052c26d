//go:build !linux

package ranks

import "syscall"

// attributes of a rank's process: a group of its own, so that Ctrl-C reaches the launcher alone. It ends with the launcher because its connection does.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
