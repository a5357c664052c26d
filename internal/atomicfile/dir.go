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

// Dir is a directory that is being filled. It ends with Publish or Discard.
type Dir struct {
	Path   string // where to write
	Target string // what it will be called
	lock   *os.File
}

// BeginDir makes a temporary directory that will become parent/name, after removing what killed processes left in
// parent. The parent is made if need be.
func BeginDir(parent, name string) (*Dir, error) {
	if name == "" || name == "." || name == ".." || filepath.Base(name) != name || strings.HasPrefix(name, Prefix) {
		return nil, fmt.Errorf("%q is not a directory name", name)
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return nil, err
	}
	list, err := os.ReadDir(parent)
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		if err := sweepOne(filepath.Join(parent, e.Name()), e); err != nil {
			return nil, err
		}
	}
	lock, err := lockedTempDir(parent, name)
	if err != nil {
		return nil, err
	}
	return &Dir{Path: lock.Name(), Target: filepath.Join(parent, name), lock: lock}, lock.Chmod(0o755)
}

// Publish syncs everything and renames the directory to its target, which must not exist (or be an empty directory).
// On any error the temporary directory is removed.
func (d *Dir) Publish() (err error) {
	defer func() {
		if err != nil {
			d.Discard()
		}
		d.release()
	}()
	if err := syncTree(d.Path); err != nil {
		return err
	}
	if err := os.Rename(d.Path, d.Target); err != nil {
		if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%s: %w", d.Target, fs.ErrExist)
		}
		return err
	}
	return Sync(filepath.Dir(d.Target))
}

// Replace is Publish over an existing directory: the old one is moved aside, and removed after the new one is durable.
// A crash in between leaves the old one as TARGET.replaced-…/old.
func (d *Dir) Replace() error {
	aside, err := os.MkdirTemp(filepath.Dir(d.Target), filepath.Base(d.Target)+".replaced-")
	if err != nil {
		d.Discard()
		return err
	}
	defer os.RemoveAll(aside)
	old := filepath.Join(aside, "old")
	moved := os.Rename(d.Target, old)
	if moved != nil && !errors.Is(moved, fs.ErrNotExist) {
		d.Discard()
		return moved
	}
	if err := d.Publish(); err != nil {
		if moved == nil {
			err = errors.Join(err, os.Rename(old, d.Target))
		}
		return err
	}
	return nil
}

// Discard removes the temporary directory. After Publish it does nothing.
func (d *Dir) Discard() error {
	if d.lock == nil {
		return nil
	}
	err := os.RemoveAll(d.Path)
	d.release()
	return err
}

func (d *Dir) release() {
	d.lock.Close() // of nil: nothing
	d.lock = nil
}

// CreateDir makes the directory dir appear with what fill wrote, or leaves everything as it was. An existing directory
// that is not empty is refused; with force it is replaced, provided that it holds marker (a file that shows it is of
// the kind that may be replaced).
func CreateDir(dir, marker string, force bool, fill func(tmp string) error) error {
	target, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	occupied, err := occupied(target, marker, force)
	if err != nil {
		return err
	}
	d, err := BeginDir(filepath.Dir(target), filepath.Base(target))
	if err != nil {
		return err
	}
	if err := fill(d.Path); err != nil {
		return errors.Join(err, d.Discard())
	}
	if occupied {
		return d.Replace()
	}
	return d.Publish()
}

func occupied(target, marker string, force bool) (bool, error) {
	list, err := os.ReadDir(target)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || len(list) == 0 {
		return false, err
	}
	if !force {
		return true, fmt.Errorf("%s is not empty: choose another directory, or --force to replace it", target)
	}
	if _, err := os.Stat(filepath.Join(target, marker)); err != nil {
		return true, fmt.Errorf("%s is not empty and has no %s: --force replaces model directories only", target,
			marker)
	}
	return true, nil
}

// RemoveDir makes a directory disappear at once (by renaming it) and then deletes it, so that a crash leaves no half of
// it under its name.
func RemoveDir(dir string) error {
	lock, err := lockedTempDir(filepath.Dir(dir), "removed")
	if err != nil {
		return err
	}
	defer lock.Close()
	aside := lock.Name()
	if err := os.Rename(dir, filepath.Join(aside, "old")); err != nil {
		os.Remove(aside)
		return err
	}
	return os.RemoveAll(aside)
}

// syncTree flushes every file and then every directory of a tree to disk, children first.
func syncTree(root string) error {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir():
			dirs = append(dirs, path)
			return nil
		case e.Type().IsRegular():
			return Sync(path)
		default:
			return fmt.Errorf("%s: neither a file nor a directory", path)
		}
	})
	for i := len(dirs) - 1; err == nil && i >= 0; i-- {
		err = Sync(dirs[i])
	}
	return err
}

// Sync flushes a directory's entries or a file's data to disk.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
