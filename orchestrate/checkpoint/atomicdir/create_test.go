package atomicdir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCreate(t *testing.T) {
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
		err := Create(dir, "config.json", s.force, s.fill)
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
