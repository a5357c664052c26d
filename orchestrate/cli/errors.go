package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"gyre/internal/exitcode"
	"gyre/internal/settings"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/model/checkpoint"
	"gyre/orchestrate/run/interrupt"
	"gyre/orchestrate/run/rundir"
	"gyre/orchestrate/study/demo"
	"gyre/orchestrate/study/plot"
	"gyre/torch"
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
	return &ExitError{Code: exitcode.Usage, Err: fmt.Errorf(format, args...)}
}

// exitCodes maps the errors that other packages return to exit codes.
var exitCodes = []struct {
	target error
	code   int
}{
	{settings.ErrInvalid, exitcode.Usage},
	{plot.ErrNotAnalysed, exitcode.Usage},
	{plot.ErrNoBudget, exitcode.Usage},
	{rundir.ErrExists, exitcode.Usage},
	{checkpoint.ErrNone, exitcode.Usage},
	{checkpoint.ErrCorrupt, exitcode.CorruptCheckpoint},
	{torch.ErrNotFinite, exitcode.Diverged},
}

// openingError is an error in what a command was to read or compute on, before it began: a path that does not exist, a
// device that is not here.
func openingError(err error) error {
	var refused *torch.Error
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, &refused) && refused.Kind == torch.ErrInvalidArgument {
		return &ExitError{Code: exitcode.Usage, Err: err}
	}
	return err
}

// conclusion prints err once and returns its exit code.
func conclusion(stderr io.Writer, ctx context.Context, err error) int {
	if cause := interrupt.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
		err = cause
	}
	var ended *ranks.Ended
	if err != nil && !(errors.As(err, &ended) && ended.Reported) {
		fmt.Fprintf(stderr, "%s %v\n", paint(stderr, red, "gyre:"), err)
	}
	return exitCode(err)
}

func exitCode(err error) int {
	var coded *ExitError
	var ended *ranks.Ended
	var interrupted *interrupt.Error
	var step *demo.StepError
	var diverged *session.Divergence
	switch {
	case err == nil:
		return exitcode.Done
	case errors.As(err, &coded):
		return coded.Code
	case errors.As(err, &ended):
		return ended.Code
	case errors.As(err, &interrupted):
		return interrupted.ExitCode()
	case errors.As(err, &step):
		return step.ExitCode()
	case errors.As(err, &diverged):
		return exitcode.Diverged
	}
	for _, e := range exitCodes {
		if errors.Is(err, e.target) {
			return e.code
		}
	}
	return exitcode.Failed
}

const (
	red    = "31"
	yellow = "33"
)

// paint colours text when w is a terminal that wants colour (NO_COLOR, CLICOLOR_FORCE and TERM=dumb are honoured).
func paint(w io.Writer, colour, text string) string {
	f, isFile := w.(*os.File)
	colourful := isFile && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
	if force := os.Getenv("CLICOLOR_FORCE"); force != "" && force != "0" {
		colourful = true
	}
	if !colourful || os.Getenv("NO_COLOR") != "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// warn writes a warning.
func warn(c *cli.Context, text string) { say(c, "warning:", text) }

// say writes a line that begins with a word in colour.
func say(c *cli.Context, word, text string) {
	fmt.Fprintf(c.App.ErrWriter, "%s %s\n", paint(c.App.ErrWriter, yellow, word), text)
}
