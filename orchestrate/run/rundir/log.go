package rundir

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// Log writes lines to log.txt, with times, and to the console, without. Console may be nil.
type Log struct {
	mu      sync.Mutex
	file    *os.File
	Console io.Writer
}

func openLog(path string) (*Log, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	return &Log{file: f, Console: os.Stderr}, nil
}

func (l *Log) close() error { return l.file.Close() }

// Infof says what is going on.
func (l *Log) Infof(format string, args ...any) { l.line(fmt.Sprintf(format, args...)) }

// Warnf says what should be looked at.
func (l *Log) Warnf(format string, args ...any) { l.line("warning: " + fmt.Sprintf(format, args...)) }

// File writes to log.txt only: for what the console shows in another form.
func (l *Log) File(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// A log that cannot be written must not end a training run: metrics and checkpoints report their own failures.
	fmt.Fprintf(l.file, "%s %s\n", time.Now().Format("2006-01-02 15:04:05"), text)
}

func (l *Log) line(text string) {
	l.File(text)
	if l.Console != nil {
		fmt.Fprintln(l.Console, text)
	}
}
