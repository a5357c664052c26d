package regular

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestOnlyRegularFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	pipe, large, link, file := filepath.Join(dir, "pipe"), filepath.Join(dir, "large"), filepath.Join(dir, "link"),
		filepath.Join(dir, "file")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.WriteFile(large, nil, 0o600), os.Truncate(large, Most+1),
		os.Symlink("/dev/zero", link), os.WriteFile(file, []byte("text"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{pipe: "not a regular file (p", link: "not a regular file (D",
		dir: "not a regular file (d", large: "expected at most 268435456"} {
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", path, err, want)
		}
	}
	if _, err := Read(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if text, err := Read(file); string(text) != "text" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}
