package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/term"

	"gyre/internal/exitcode"
	"gyre/internal/settings"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/model/checkpoint"
	"gyre/orchestrate/run/interrupt"
	"gyre/orchestrate/run/rundir"
	"gyre/orchestrate/study/plot"
	"gyre/torch"
)

const (
	exitDone              = exitcode.Done
	exitFailed            = exitcode.Failed
	exitUsage             = exitcode.Usage
	exitDiverged          = exitcode.Diverged
	exitCorruptCheckpoint = exitcode.CorruptCheckpoint
	exitStoppedEarly      = exitcode.StoppedEarly
)

// ExitError is an error with the exit code it ends the process with.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string { return e.Err.Error() }
func (e *ExitError) Unwrap() error { return e.Err }

// Usagef is an error in how a command was called or configured: exit code 2.
func Usagef(format string, args ...any) error {
	return &ExitError{Code: exitUsage, Err: fmt.Errorf(format, args...)}
}

// exitCodes maps the errors that other packages return to exit codes.
var exitCodes = []struct {
	target error
	code   int
}{
	{settings.ErrInvalid, exitUsage},
	{plot.ErrNotAnalysed, exitUsage},
	{rundir.ErrExists, exitUsage},
	{checkpoint.ErrNone, exitUsage},
	{checkpoint.ErrCorrupt, exitCorruptCheckpoint},
}

// openingError is an error in what a command was to read or compute on, before it began: a path that does not exist, a
// device that is not here.
func openingError(err error) error {
	if err == nil {
		return nil
	}
	var refused *torch.Error
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, &refused) && refused.Kind == torch.ErrInvalidArgument {
		return &ExitError{Code: exitUsage, Err: err}
	}
	return trainingError(err)
}

// trainingError gives an error of the trainer its exit code.
func trainingError(err error) error {
	var diverged interface{ Diverged() bool }
	switch {
	case errors.As(err, &diverged), errors.Is(err, torch.ErrNotFinite):
		return &ExitError{Code: exitDiverged, Err: err}
	case errors.Is(err, checkpoint.ErrCorrupt):
		return &ExitError{Code: exitCorruptCheckpoint, Err: err}
	}
	return err
}

// conclusion prints err once and returns its exit code.
func conclusion(stderr io.Writer, ctx context.Context, err error) int {
	if err == nil {
		return exitDone
	}
	if cause := interrupt.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
		err = cause
	}
	var ended *ranks.Ended
	if errors.As(err, &ended) && ended.Reported {
		return ended.Code
	}
	fmt.Fprintf(stderr, "%s %v\n", paint(stderr, red, "gyre:"), err)
	return exitCode(err)
}

func exitCode(err error) int {
	if err == nil {
		return exitDone
	}
	var coded *ExitError
	if errors.As(err, &coded) {
		return coded.Code
	}
	var ended *ranks.Ended
	if errors.As(err, &ended) {
		return ended.Code
	}
	var interrupted *interrupt.Error
	if errors.As(err, &interrupted) {
		return interrupted.ExitCode()
	}
	for _, e := range exitCodes {
		if errors.Is(err, e.target) {
			return e.code
		}
	}
	return exitFailed
}

const (
	red    = "31"
	yellow = "33"
)

// paint colours text when w is a terminal that wants colour (NO_COLOR, CLICOLOR_FORCE and TERM=dumb are honoured).
func paint(w io.Writer, colour, text string) string {
	if !colourful(w) {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

func colourful(w io.Writer) bool {
	if os.Getenv("NO_COLOR") != "" {
		return false
	}
	if force := os.Getenv("CLICOLOR_FORCE"); force != "" && force != "0" {
		return true
	}
	f, ok := w.(*os.File)
	return ok && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}
