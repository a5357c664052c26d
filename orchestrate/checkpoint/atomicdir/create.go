package atomicdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Create makes the directory dir appear with what fill wrote, or leaves everything as it was. An existing directory
// that is not empty is refused; with force it is replaced, provided that it holds marker (a file that shows it is of
// the kind that may be replaced).
func Create(dir, marker string, force bool, fill func(tmp string) error) error {
	target, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	occupied, err := occupied(target, marker, force)
	if err != nil {
		return err
	}
	p, err := Begin(filepath.Dir(target), filepath.Base(target))
	if err != nil {
		return err
	}
	if err := fill(p.Dir); err != nil {
		return errors.Join(err, p.Discard())
	}
	if occupied {
		return p.Replace()
	}
	return p.Publish()
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
		return true, fmt.Errorf("%s is not empty and has no %s: --force replaces model directories only", target, marker)
	}
	return true, nil
}
