package atomicdir

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// tryLock takes the directory's lock, or fails when another process (or Pending) holds it or the directory is gone.
func tryLock(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
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
		if err != nil { // in use
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
