// Package atomicfile makes files and directories appear under their names whole or not at all: readers, and a crash of
// the process or of the machine at any moment, see the old one or the new one. Work goes into a temporary file or
// directory beside the target, everything is synced, and a rename publishes it.
//
// What is temporary carries an advisory lock (flock) of the process that fills it, so that the leftovers of a killed
// process are told from work in progress: Sweep removes them, and so does the next BeginDir beside them.
package atomicfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Exists reports whether there is a file or directory of this name, joined of elements.
func Exists(elements ...string) bool {
	_, err := os.Stat(filepath.Join(elements...))
	return err == nil
}

// File is a file being written. It ends with Commit or Close.
type File struct {
	path string
	file *os.File // nil once committed or closed
	out  *bufio.Writer
}

// Create starts a file; parent folders are made. Always Close it: without a Commit, nothing remains.
func Create(path string) (*File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	file, err := locked(filepath.Dir(path), func() (*os.File, error) {
		return os.CreateTemp(filepath.Dir(path), Prefix+filepath.Base(path)+"-*")
	})
	if err != nil {
		return nil, err
	}
	return &File{path: path, file: file, out: bufio.NewWriterSize(file, 1<<16)}, nil
}

// Write appends to the file.
func (f *File) Write(p []byte) (int, error) { return f.out.Write(p) }

// Commit makes the file durable and gives it its name, in place of what had it before. On an error nothing remains
// after Close.
func (f *File) Commit() error {
	if err := errors.Join(f.out.Flush(), f.file.Chmod(0o644), f.file.Sync()); err != nil {
		return err
	}
	if err := os.Rename(f.file.Name(), f.path); err != nil {
		return err
	}
	err := f.file.Close()
	f.file = nil
	return errors.Join(err, Sync(filepath.Dir(f.path)))
}

// Close discards a file that was not committed. It may be called more than once.
func (f *File) Close() error {
	if f.file == nil {
		return nil
	}
	name := f.file.Name()
	err := errors.Join(f.file.Close(), os.Remove(name))
	f.file = nil
	return err
}

// Write makes path with what content writes.
func Write(path string, content func(io.Writer) error) error {
	f, err := Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err = content(f); err == nil {
		err = f.Commit()
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// Symlink makes path a link to target, relative to path's folder, in place of what had the name before.
func Symlink(target, path string) error {
	f, err := Create(path) // for a name that nobody else has, and that a sweep removes
	if err != nil {
		return err
	}
	name := f.file.Name()
	defer os.Remove(name)
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Symlink(target, name); err != nil {
		return err
	}
	return errors.Join(os.Rename(name, path), Sync(filepath.Dir(path)))
}

// Prefix starts the names of temporary files and directories. Whoever lists a parent skips them.
const Prefix = ".tmp-"

// attempts bounds how often a temporary name is made again because a sweep of another process removed it before it was
// locked.
const attempts = 100

// Sweep removes the temporary files and directories below root that no process holds: what killed processes left. A
// root that does not exist holds none.
func Sweep(root string) error {
	return filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // another process was faster
			return nil
		case err != nil:
			return err
		}
		if err := sweepOne(path, e); err != nil {
			return err
		}
		if e.IsDir() && strings.HasPrefix(e.Name(), Prefix) {
			return fs.SkipDir
		}
		return nil
	})
}

func sweepOne(path string, e fs.DirEntry) error {
	if !strings.HasPrefix(e.Name(), Prefix) || !e.IsDir() && !e.Type().IsRegular() {
		return nil
	}
	f, err := os.Open(path)
	if err != nil { // gone, or not ours
		return nil
	}
	defer f.Close()
	// Without locks on this file system a leftover cannot be told from work in progress, and stays.
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil
	}
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("removing the leftover of a killed process: %w", err)
	}
	return nil
}

// locked makes something temporary in parent and takes its lock, which tells Sweep that somebody is at work. A sweep of
// another process just before makes another attempt necessary. A file system without locks has no sweeps.
func locked(parent string, create func() (*os.File, error)) (*os.File, error) {
	for range attempts {
		f, err := create()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if _, gone := os.Lstat(f.Name()); gone == nil && !errors.Is(err, unix.EWOULDBLOCK) {
			return f, nil
		}
		f.Close()
	}
	return nil, fmt.Errorf("%s: temporary files vanish as soon as they are made", parent)
}

// lockedTempDir makes a temporary directory; the open directory is its lock.
func lockedTempDir(parent, name string) (*os.File, error) {
	return locked(parent, func() (*os.File, error) {
		path, err := os.MkdirTemp(parent, Prefix+name+"-")
		if err != nil {
			return nil, err
		}
		return os.Open(path)
	})
}
