package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Dir is an open run directory, held by this process alone.
type Dir struct {
	Path string
	lock *os.File
	Log  *Log
}

// ErrExists means that a new run would write into a directory that holds another.
var ErrExists = errors.New("run directory exists")

// Open creates the directory of a new run, or opens an existing one when resume is set. A directory that already holds a run is refused
// without resume; one that another process is writing to is always refused.
func Open(path string, resume bool) (*Dir, error) {
	if _, err := os.Stat(filepath.Join(path, "config.toml")); err == nil && !resume {
		return nil, fmt.Errorf("%w: %s already holds a run; continue it with --resume, or choose another run.name", ErrExists, path)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, fmt.Errorf("creating the run directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, ".lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("locking the run directory: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(lock.Name())
		lock.Close()
		return nil, fmt.Errorf("%s is in use by process %s: wait for it, or stop it", path, strings.TrimSpace(string(holder)))
	}
	if err := errors.Join(lock.Truncate(0), writeAt0(lock, strconv.Itoa(os.Getpid())+"\n")); err != nil {
		lock.Close()
		return nil, fmt.Errorf("locking the run directory: %w", err)
	}
	log, err := openLog(filepath.Join(path, "log.txt"))
	if err != nil {
		lock.Close()
		return nil, err
	}
	return &Dir{Path: path, lock: lock, Log: log}, nil
}

func writeAt0(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

// Close releases the directory. It may be called twice.
func (d *Dir) Close() error {
	if d.lock == nil {
		return nil
	}
	err := errors.Join(d.Log.close(), d.lock.Close())
	d.lock = nil
	return err
}

// File names something inside the directory.
func (d *Dir) File(elements ...string) string {
	return filepath.Join(append([]string{d.Path}, elements...)...)
}

// WriteConfig saves the resolved configuration.
func (d *Dir) WriteConfig(toml []byte) error { return writeFile(d.File("config.toml"), toml) }

// WriteInfo saves run.json.
func (d *Dir) WriteInfo(info any) error {
	data, err := json.MarshalIndent(info, "", "  ")
	if err != nil {
		return fmt.Errorf("run.json: %w", err)
	}
	return writeFile(d.File("run.json"), append(data, '\n'))
}

// writeFile replaces path in one step: readers see the old or the new contents, also after a crash.
func writeFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-"+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return os.Rename(f.Name(), path)
}
