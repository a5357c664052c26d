package tracking

import (
	"os"
	"path/filepath"
	"testing"
)

// A link leads to the last run's folder, also before that exists, and takes nothing away.
func TestLink(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "here", "rewards")
	for _, run := range []string{"one", "two"} {
		folder := filepath.Join(dir, "runs", run)
		if taken, err := Link(folder, path); err != nil || taken {
			t.Fatal(taken, err)
		}
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "x"), []byte(run), 0o600); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(filepath.Join(path, "x")); err != nil || string(text) != run {
			t.Errorf("%s: %s, %v", run, text, err)
		}
	}
	own := filepath.Join(dir, "runs", "one")
	if taken, err := Link(filepath.Join(dir, "runs", "two"), own); err != nil || !taken {
		t.Errorf("a folder: taken %v, %v", taken, err)
	}
	if text, err := os.ReadFile(filepath.Join(own, "x")); err != nil || string(text) != "one" {
		t.Errorf("the folder that was there: %s, %v", text, err)
	}
}
