// Package rundir knows a run directory: who may write in it, what describes the run, its log, and how others read it.
//
//	runs/<name>/config.toml   the resolved configuration
//	            run.json      id, versions, seeds, hashes, how the run ended
//	            log.txt       everything that was said, with times
//	            metrics.jsonl, tensorboard/, wandb/   what was measured (package metrics)
//	            rollouts/, global_step_N/, analysis/, plots/ belong to the packages that write them
//
// Dir is the directory of the one process that writes; Run is what plots, reports and sweeps read, during the run or
// after it.
package rundir

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gyre/internal/atomicfile"
)

// Dir is an open run directory, held by this process alone.
type Dir struct {
	Path string
	// ID is the run's, and Before the run.json that was there; nil in a new run.
	ID     string
	Before *Info
	Log    *Log
	lock   *os.File
	fresh  bool // Open made the directory
}

// CheckpointPrefix starts the names of a run's checkpoints, as verl's do.
const CheckpointPrefix = "global_step_"

// ErrExists means that a new run would write into a directory that holds another.
var ErrExists = errors.New("run directory exists")

// Open creates the directory of a new run, or opens an existing one when resume is set. A directory in which a run
// got as far as its first metrics is refused without resume; one that another process is writing to is always
// refused.
func Open(path string, resume bool) (*Dir, error) {
	_, err := os.Stat(path)
	fresh := errors.Is(err, fs.ErrNotExist)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, fmt.Errorf("creating the run directory: %w", err)
	}
	lock, err := Lock(path)
	if err != nil {
		return nil, err
	}
	if err := Check(path, resume); err != nil {
		lock.Close()
		return nil, err
	}
	// The ID is eight letters and digits, as experiment trackers have them. Nothing that is computed depends on it.
	d := &Dir{Path: path, ID: strings.ToLower(rand.Text()[:8]), lock: lock, fresh: fresh}
	if d.Before, err = ReadInfo(path); err == nil {
		err = atomicfile.Sweep(path)
	}
	if err == nil {
		d.Log, err = openLog(filepath.Join(path, "log.txt"))
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	if resume && d.Before != nil && d.Before.ID != "" {
		d.ID = d.Before.ID
	}
	return d, nil
}

// Check sees that Open would accept a directory, and makes nothing.
func Check(path string, resume bool) error {
	if !resume && holdsRun(path) {
		return fmt.Errorf("%w: %s already holds a run; continue it with --resume, or choose another run.name",
			ErrExists, path)
	}
	for at := filepath.Clean(path); ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at) {
			continue
		}
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%s is no directory", at)
		} else if err == nil {
			err = unix.Access(at, unix.W_OK|unix.X_OK)
		}
		if err != nil {
			return fmt.Errorf("the run directory %s cannot be made in %s: %w; choose another run.output", path, at, err)
		}
		return nil
	}
}

// holdsRun reports whether there is something in path that a new run would spoil.
func holdsRun(path string) bool {
	metrics, err := os.Stat(filepath.Join(path, "metrics.jsonl"))
	if err == nil && metrics.Size() > 0 {
		return true
	}
	checkpoints, _ := filepath.Glob(filepath.Join(path, "global_step_*"))
	return len(checkpoints) > 0
}

// Lock makes this process the only one that writes to a directory; the system takes the lock back however the process
// ends.
func Lock(path string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(path, ".lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("locking the directory: %w", err)
	}
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	// a reader may be looking whether anybody holds it
	for tries := 0; tries < 5 && errors.Is(err, syscall.EWOULDBLOCK); tries++ {
		time.Sleep(10 * time.Millisecond)
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err != nil {
		holder, _ := os.ReadFile(lock.Name())
		lock.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		return nil, fmt.Errorf("%s is in use by process %s: wait for it, or stop it", path,
			strings.TrimSpace(string(holder)))
	}
	err = lock.Truncate(0)
	if err == nil {
		_, err = lock.WriteString(strconv.Itoa(os.Getpid()) + "\n")
	}
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("locking the directory: %w", err)
	}
	return lock, nil
}

// Died records how a run ended that cannot do so itself, since the process that writes in its directory was killed or
// hangs: its run.json still says "running". A run that has recorded its end, or that another process has taken up,
// stays as it is.
func Died(path, reason string) error {
	lock, err := Lock(path)
	if err != nil {
		holder, _ := os.ReadFile(filepath.Join(path, ".lock"))
		// this process holds it, and hangs elsewhere
		if strings.TrimSpace(string(holder)) != strconv.Itoa(os.Getpid()) {
			return nil
		}
	} else {
		defer lock.Close()
	}
	info, err := readInfo(path)
	if err != nil || info == nil || info.Status != "running" {
		return err
	}
	info.Status, info.Reason, info.Updated = "failed", reason, time.Now().UTC().Truncate(time.Second)
	return (&Dir{Path: path, ID: info.ID}).WriteInfo(*info)
}

// Discard closes the directory of a run that could not start, and removes it if Open made it.
func (d *Dir) Discard() error {
	if !d.fresh {
		return d.Close()
	}
	return errors.Join(os.RemoveAll(d.Path), d.Close())
}

// ErrGone means that a run's directory is not the one any more that the run has opened.
var ErrGone = errors.New("the run's directory was removed or replaced while the run wrote in it")

// Held sees that the directory under the path is still the one that this process holds. Files that are written by
// name would otherwise make another, which lacks what was written before.
func (d *Dir) Held() error {
	own, err := d.lock.Stat()
	if err != nil {
		return fmt.Errorf("%s: %w", d.Path, err)
	}
	if there, err := os.Stat(d.File(".lock")); err != nil || !os.SameFile(own, there) {
		return fmt.Errorf("%s: %w (its .lock is not this process's): what it held is lost unless it was moved; start "+
			"the run anew, or move the directory back and --resume", d.Path, ErrGone)
	}
	return nil
}

// Close releases the directory. It may be called twice.
func (d *Dir) Close() error {
	if d.lock == nil {
		return nil
	}
	err := errors.Join(d.Log.file.Close(), d.lock.Close())
	d.lock = nil
	return err
}

// File names something inside the directory.
func (d *Dir) File(elements ...string) string {
	return filepath.Join(append([]string{d.Path}, elements...)...)
}

// WriteConfig saves the resolved configuration.
func (d *Dir) WriteConfig(toml []byte) error { return writeFile(d.File("config.toml"), toml) }

func writeFile(path string, data []byte) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// Log writes lines to log.txt, with times, and to the console, without. Console may be nil.
type Log struct {
	mu      sync.Mutex // guards writes to file
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
