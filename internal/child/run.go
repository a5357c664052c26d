package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// Run runs a command with Attributes until it ends, and gives its exit code. Its output goes to log, after a line with
// the command itself. environment is as in [exec.Cmd]. When ctx ends, the command is asked to end by SIGTERM, and
// waited for: that is no error.
func Run(ctx context.Context, log io.Writer, environment []string, command string, args ...string) (code int, err error) {
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = environment, log, log, Attributes()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	fmt.Fprintf(log, "$ %s\n", strings.Join(cmd.Args, " "))
	runtime.LockOSThread() // see Attributes
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("starting %s: %w", command, err)
	}
	if err := cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) && ctx.Err() == nil {
		return 0, fmt.Errorf("%s: %w", command, err)
	}
	return cmd.ProcessState.ExitCode(), nil
}
