package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// only checks that the folder holds one file with the given text and nothing else.
func only(t *testing.T, path, text string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 || entries[0].Name() != filepath.Base(path) {
		t.Fatalf("the folder holds %v", entries)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != text {
		t.Fatalf("%s holds %q, %v; want %q", path, data, err, text)
	}
	if info, err := entries[0].Info(); err != nil || info.Mode().Perm() != 0o644 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
}

func TestOldOrNew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "folder", "file")
	write := func(text string, err error) func(io.Writer) error {
		return func(w io.Writer) error { return errors.Join(second(io.WriteString(w, text)), err) }
	}
	if err := Write(path, write("old", nil)); err != nil {
		t.Fatal(err)
	}
	only(t, path, "old")
	broken := errors.New("broken")
	if err := Write(path, write("half", broken)); !errors.Is(err, broken) {
		t.Fatalf("got %v", err)
	}
	only(t, path, "old")

	f, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(f, "new"); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "old" {
		t.Fatalf("before the commit: %q, %v", data, err)
	}
	if err := errors.Join(f.Commit(), f.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	only(t, path, "new")
}

// A name that cannot be taken (a folder has it) is an error and leaves nothing.
func TestUnavailableName(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "taken")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, func(io.Writer) error { return nil }); err == nil {
		t.Fatal("a folder was replaced by a file")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Fatalf("left behind: %v, %v", entries, err)
	}
}

func second(_ int, err error) error { return err }

func TestSymlinkTakesTheNameAtOnce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "sub", "best")
	for _, target := range []string{"step_1", "step_2"} {
		if err := Symlink(target, path); err != nil {
			t.Fatal(err)
		}
		if got, err := os.Readlink(path); got != target || err != nil {
			t.Errorf("the link goes to %q (%v), expected %q", got, err, target)
		}
	}
	if got := names(t, filepath.Dir(path)); got != "best" {
		t.Errorf("beside the link lies %q", got)
	}
	taken := filepath.Join(dir, "folder")
	if err := os.Mkdir(taken, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Symlink("step_1", taken); err == nil || names(t, dir) != "folder sub" {
		t.Errorf("a folder's name: %v, %q", err, names(t, dir))
	}
	if err := Symlink("step_1", filepath.Join(path, "below a link to nothing")); err == nil {
		t.Error("a link below something that is no folder")
	}
}
