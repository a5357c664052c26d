package atomicdir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// errNoLocks says that the file system knows no locks. Then leftovers are not told from work in progress, and stay.
var errNoLocks = errors.New("no file locks")

// tryLock takes the directory's lock, or fails when another process (or Pending) holds it or the directory is gone. With
// errNoLocks it returns the open directory all the same.
func tryLock(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		f.Close()
		return nil, err
	case err != nil:
		return f, errors.Join(errNoLocks, err)
	}
	if _, err := os.Stat(dir); err != nil { // removed between open and lock
		f.Close()
		return nil, err
	}
	return f, nil
}

// sweep removes the temporary directories nobody holds.
func sweep(parent string) error {
	list, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	for _, e := range list {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), Prefix) {
			continue
		}
		dir := filepath.Join(parent, e.Name())
		lock, err := tryLock(dir)
		if err != nil { // in use, or not to be known
			if lock != nil {
				lock.Close()
			}
			continue
		}
		err = os.RemoveAll(dir)
		lock.Close()
		if err != nil {
			return fmt.Errorf("removing the leftover of a killed process: %w", err)
		}
	}
	return nil
}
