package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

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
