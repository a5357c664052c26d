package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gyre/internal/child/childtest"
)

func names(t *testing.T, dir string) string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range list {
		out = append(out, e.Name())
	}
	return strings.Join(out, " ")
}

func begin(t *testing.T, parent, name string) *Dir {
	t.Helper()
	p, err := BeginDir(parent, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(p.Path, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.Path, "sub", "file"), []byte(name), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPublishAndDiscard(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "new", "parent")
	p := begin(t, parent, "a")
	other := begin(t, parent, "b") // work in progress survives the sweep of another BeginDir
	if !strings.HasPrefix(names(t, parent), Prefix) {
		t.Errorf("before publishing: %s", names(t, parent))
	}
	if err := p.Publish(); err != nil {
		t.Fatal(err)
	}
	if err := other.Discard(); err != nil {
		t.Fatal(err)
	}
	if err := p.Discard(); err != nil { // nothing to do
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(parent, "a", "sub", "file")); err != nil || string(data) != "a" ||
		names(t, parent) != "a" {
		t.Errorf("published: %q, %v; left: %s", data, err, names(t, parent))
	}
	if err := begin(t, parent, "a").Publish(); !errors.Is(err, fs.ErrExist) {
		t.Errorf("publishing over a directory: %v", err)
	}
	if names(t, parent) != "a" {
		t.Errorf("after a failure: %s", names(t, parent))
	}
	p = begin(t, parent, "a")
	if err := os.WriteFile(filepath.Join(p.Path, "second"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.Replace(); err != nil || names(t, filepath.Join(parent, "a")) != "second sub" ||
		names(t, parent) != "a" {
		t.Errorf("replaced: %v, %s", err, names(t, parent))
	}
	if err := begin(t, parent, "c").Replace(); err != nil || names(t, parent) != "a c" {
		t.Errorf("replacing nothing: %v, %s", err, names(t, parent))
	}
	if err := RemoveDir(filepath.Join(parent, "c")); err != nil || names(t, parent) != "a" {
		t.Errorf("removed: %v, %s", err, names(t, parent))
	}
	for _, bad := range []string{"", "a/b", "..", ".", Prefix + "x"} {
		if p, err := BeginDir(parent, bad); err == nil {
			t.Errorf("BeginDir(%q) gives %s", bad, p.Path)
		}
	}
}

// What a killed process was writing is removed by a sweep and by the next BeginDir; work in progress is not.
func TestLeftoversOfKilledProcesses(t *testing.T) {
	if parent := os.Getenv("ATOMICFILE_TEST_PARENT"); parent != "" { // the child: begins, and waits to be killed
		begin(t, parent, "x")
		if _, err := Create(filepath.Join(parent, "folder", "file")); err != nil {
			t.Fatal(err)
		}
		os.Stdout.WriteString("begun\n")
		time.Sleep(time.Minute)
		return
	}
	parent := t.TempDir()
	folder := filepath.Join(parent, "folder")
	child := exec.Command(os.Args[0], "-test.run=^TestLeftoversOfKilledProcesses$")
	child.Env = append(os.Environ(), "ATOMICFILE_TEST_PARENT="+parent)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	alive := begin(t, parent, "y")
	if err := Sweep(parent); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(names(t, parent)+names(t, folder), Prefix); n != 3 {
		t.Errorf("while both work: %s; %s", names(t, parent), names(t, folder))
	}
	childtest.Kill(t, child)
	begin(t, parent, "z").Discard()
	if got := names(t, parent); got != filepath.Base(alive.Path)+" folder" {
		t.Errorf("after the kill: %s, want only %s", got, filepath.Base(alive.Path))
	}
	mine, err := Create(filepath.Join(folder, "mine"))
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	if err := errors.Join(os.WriteFile(filepath.Join(folder, "kept"), nil, 0o600), Sweep(parent),
		Sweep(filepath.Join(parent, "none"))); err != nil {
		t.Fatal(err)
	}
	if got := names(t, folder); got != filepath.Base(mine.file.Name())+" kept" {
		t.Errorf("after the sweep: %s", got)
	}
	alive.Discard()
}

func TestCreateDir(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "model")
	write := func(name string) func(string) error {
		return func(tmp string) error { return os.WriteFile(filepath.Join(tmp, name), nil, 0o600) }
	}
	broken := errors.New("broken")
	fail := func(tmp string) error { return errors.Join(write("half")(tmp), broken) }
	steps := []struct {
		what  string
		force bool
		fill  func(string) error
		want  string // of the error
		files string
	}{
		{"failing", false, fail, "broken", ""},
		{"new", false, write("config.json"), "", "config.json"},
		{"occupied", false, write("x"), "not empty", "config.json"},
		{"failing by force", true, fail, "broken", "config.json"},
		{"by force", true, write("other"), "", "other"},
		{"not a model", true, write("config.json"), "has no config.json", "other"},
	}
	for _, s := range steps {
		err := CreateDir(dir, "config.json", s.force, s.fill)
		if (err == nil) != (s.want == "") || err != nil && !strings.Contains(err.Error(), s.want) {
			t.Errorf("%s: error %v, want %q", s.what, err, s.want)
		}
		if s.files == "" {
			if got := names(t, parent); got != "" {
				t.Errorf("%s: left %s", s.what, got)
			}
		} else if got := names(t, parent) + ": " + names(t, dir); got != "model: "+s.files {
			t.Errorf("%s: left %s, want %s", s.what, got, s.files)
		}
	}
}

// What cannot be published gives the name back to what had it before.
func TestReplaceGivesTheOldBack(t *testing.T) {
	parent := t.TempDir()
	if err := begin(t, parent, "model").Publish(); err != nil {
		t.Fatal(err)
	}
	p := begin(t, parent, "model")
	if err := os.RemoveAll(p.Path); err != nil { // a user's rm, or a full disk
		t.Fatal(err)
	}
	if err := p.Replace(); err == nil {
		t.Fatal("a directory that is gone was published")
	}
	if content, err := os.ReadFile(filepath.Join(parent, "model", "sub", "file")); string(content) != "model" ||
		names(t, parent) != "model" {
		t.Errorf("%q (%v) is left, beside it %q", content, err, names(t, parent))
	}
}

func TestRemoveDir(t *testing.T) {
	parent := t.TempDir()
	if err := begin(t, parent, "old").Publish(); err != nil {
		t.Fatal(err)
	}
	if err := RemoveDir(filepath.Join(parent, "old")); err != nil || names(t, parent) != "" {
		t.Errorf("%v, %q is left", err, names(t, parent))
	}
	if err := RemoveDir(filepath.Join(parent, "old")); !errors.Is(err, fs.ErrNotExist) || names(t, parent) != "" {
		t.Errorf("a directory that is not there: %v, %q is left", err, names(t, parent))
	}
}

// A tree with something that is neither a file nor a directory is not published: nobody could say that it is on the
// disk.
func TestOddEntriesAreRefused(t *testing.T) {
	parent := t.TempDir()
	p := begin(t, parent, "model")
	if err := os.Symlink("/dev/null", filepath.Join(p.Path, "link")); err != nil {
		t.Fatal(err)
	}
	if err := p.Publish(); err == nil || !strings.Contains(err.Error(), "neither a file nor a directory") ||
		names(t, parent) != "" {
		t.Errorf("%v, %q is left", err, names(t, parent))
	}
}
