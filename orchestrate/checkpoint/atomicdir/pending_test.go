package atomicdir

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
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

func begin(t *testing.T, parent, name string) *Pending {
	t.Helper()
	p, err := Begin(parent, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(p.Dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.Dir, "sub", "file"), []byte(name), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPublishAndDiscard(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "new", "parent")
	p := begin(t, parent, "a")
	other := begin(t, parent, "b") // work in progress survives the sweep of another Begin
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
	if data, err := os.ReadFile(filepath.Join(parent, "a", "sub", "file")); err != nil || string(data) != "a" || names(t, parent) != "a" {
		t.Errorf("published: %q, %v; left: %s", data, err, names(t, parent))
	}
	if err := begin(t, parent, "a").Publish(); !errors.Is(err, fs.ErrExist) {
		t.Errorf("publishing over a directory: %v", err)
	}
	if names(t, parent) != "a" {
		t.Errorf("after a failure: %s", names(t, parent))
	}
	p = begin(t, parent, "a")
	if err := os.WriteFile(filepath.Join(p.Dir, "second"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.Replace(); err != nil || names(t, filepath.Join(parent, "a")) != "second sub" || names(t, parent) != "a" {
		t.Errorf("replaced: %v, %s", err, names(t, parent))
	}
	if err := begin(t, parent, "c").Replace(); err != nil || names(t, parent) != "a c" {
		t.Errorf("replacing nothing: %v, %s", err, names(t, parent))
	}
	if err := Remove(filepath.Join(parent, "c")); err != nil || names(t, parent) != "a" {
		t.Errorf("removed: %v, %s", err, names(t, parent))
	}
	for _, bad := range []string{"", "a/b", "..", ".", Prefix + "x"} {
		if p, err := Begin(parent, bad); err == nil {
			t.Errorf("Begin(%q) gives %s", bad, p.Dir)
		}
	}
}

// A process killed between Begin and Publish leaves a directory that the next Begin removes.
func TestLeftoversOfKilledProcesses(t *testing.T) {
	if parent := os.Getenv("ATOMICDIR_TEST_PARENT"); parent != "" { // the child: begins, and waits to be killed
		begin(t, parent, "x")
		os.Stdout.WriteString("begun\n")
		time.Sleep(time.Minute)
		return
	}
	parent := t.TempDir()
	child := exec.Command(os.Args[0], "-test.run=^TestLeftoversOfKilledProcesses$")
	child.Env = append(os.Environ(), "ATOMICDIR_TEST_PARENT="+parent)
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
	if n := strings.Count(names(t, parent), Prefix); n != 2 {
		t.Errorf("while both work: %s", names(t, parent))
	}
	child.Process.Kill()
	child.Wait()
	begin(t, parent, "z").Discard()
	if got := names(t, parent); got != filepath.Base(alive.Dir) {
		t.Errorf("after the kill: %s, want only %s", got, filepath.Base(alive.Dir))
	}
	alive.Discard()
}
