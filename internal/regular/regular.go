// Package regular reads files that a user or a downloaded model names: regular ones only. A pipe would keep the program
// waiting, and a device could give bytes without end.
package regular

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// Most is the size of the largest file that Read takes.
const Most = 256 << 20

// Open opens a file for reading, and says how large it is.
func Open(path string) (*os.File, int64, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would wait for who writes into it
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: not a regular file (%v)", path, info.Mode().Type())
	}
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, info.Size(), nil
}

// Read reads all of a file of at most Most bytes.
func Read(path string) ([]byte, error) {
	file, size, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if size > Most {
		return nil, fmt.Errorf("%s has %d bytes, expected at most %d", path, size, Most)
	}
	return io.ReadAll(io.LimitReader(file, Most))
}
