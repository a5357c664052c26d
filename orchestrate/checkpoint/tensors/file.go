package tensors

import (
	"fmt"
	"os"
)

// OpenRegular opens a file for reading and gives its size. Anything but a regular file (a pipe would block, a device
// has no end) is refused.
func OpenRegular(path string) (*os.File, int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s: not a regular file (%v)", path, info.Mode().Type())
	}
	file, err := os.Open(path)
	return file, info.Size(), err
}
