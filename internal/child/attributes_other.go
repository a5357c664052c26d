//go:build !linux

package child

import "syscall"

// Attributes put a process into a group of its own, so that Ctrl-C reaches its parent alone, which tells it when to
// end. These systems do not end it with its parent: a rank ends because its connection does, and a run that outlives
// its study is waited for by the next one.
func Attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
