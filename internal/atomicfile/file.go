package atomicfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

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
