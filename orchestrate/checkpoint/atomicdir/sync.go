package atomicdir

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

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
			return SyncDir(path)
		default:
			return fmt.Errorf("%s: neither a file nor a directory", path)
		}
	})
	for i := len(dirs) - 1; err == nil && i >= 0; i-- {
		err = SyncDir(dirs[i])
	}
	return err
}

// SyncDir flushes a directory's entries (or a file's data) to disk.
func SyncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = f.Sync()
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}
