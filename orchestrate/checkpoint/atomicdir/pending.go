package atomicdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Prefix starts the names of temporary directories. Whoever lists a parent skips them.
const Prefix = ".tmp-"

// Pending is a directory that is being filled. It ends with Publish or Discard.
type Pending struct {
	Dir    string // where to write
	Target string // what it will be called
	lock   *os.File
}

// Begin makes a temporary directory that will become parent/name, after removing what killed processes left in
// parent. The parent is made if need be.
func Begin(parent, name string) (*Pending, error) {
	if name == "" || name == "." || name == ".." || filepath.Base(name) != name || strings.HasPrefix(name, Prefix) {
		return nil, fmt.Errorf("%q is not a directory name", name)
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return nil, err
	}
	if err := sweep(parent); err != nil {
		return nil, err
	}
	// A sweep of another process may remove the new directory before it is locked: then it is made again.
	for range 100 {
		dir, err := os.MkdirTemp(parent, Prefix+name+"-")
		if err != nil {
			return nil, err
		}
		if lock, err := tryLock(dir); err == nil || errors.Is(err, errNoLocks) {
			if err := os.Chmod(dir, 0o755); err == nil {
				return &Pending{Dir: dir, Target: filepath.Join(parent, name), lock: lock}, nil
			}
			lock.Close()
		}
	}
	return nil, fmt.Errorf("%s: temporary directories vanish as soon as they are made", parent)
}

// Publish syncs everything and renames the directory to its target, which must not exist (or be an empty directory).
// On any error the temporary directory is removed.
func (p *Pending) Publish() (err error) {
	defer func() {
		if err != nil {
			p.Discard()
		}
		p.release()
	}()
	if err := syncTree(p.Dir); err != nil {
		return err
	}
	if err := os.Rename(p.Dir, p.Target); err != nil {
		if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%s: %w", p.Target, fs.ErrExist)
		}
		return err
	}
	return SyncDir(filepath.Dir(p.Target))
}

// Replace is Publish over an existing directory: the old one is moved aside, and removed after the new one is durable.
// A crash in between leaves the old one as TARGET.replaced-…/old.
func (p *Pending) Replace() error {
	aside, err := os.MkdirTemp(filepath.Dir(p.Target), filepath.Base(p.Target)+".replaced-")
	if err != nil {
		p.Discard()
		return err
	}
	defer os.RemoveAll(aside)
	old := filepath.Join(aside, "old")
	moved := os.Rename(p.Target, old)
	if moved != nil && !errors.Is(moved, fs.ErrNotExist) {
		p.Discard()
		return moved
	}
	if err := p.Publish(); err != nil {
		if moved == nil {
			err = errors.Join(err, os.Rename(old, p.Target))
		}
		return err
	}
	return nil
}

// Discard removes the temporary directory. After Publish it does nothing.
func (p *Pending) Discard() error {
	if p.lock == nil {
		return nil
	}
	err := os.RemoveAll(p.Dir)
	p.release()
	return err
}

func (p *Pending) release() {
	if p.lock != nil {
		p.lock.Close()
		p.lock = nil
	}
}

// Remove makes a directory disappear at once (by renaming it) and then deletes it, so that a crash leaves no half of
// it under its name.
func Remove(dir string) error {
	aside, err := os.MkdirTemp(filepath.Dir(dir), Prefix+"removed-")
	if err != nil {
		return err
	}
	if err := os.Rename(dir, filepath.Join(aside, "old")); err != nil {
		os.Remove(aside)
		return err
	}
	return os.RemoveAll(aside)
}
