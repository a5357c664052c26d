package causes

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gyre/orchestrate/run/rundir"
)

// unpack makes the folder of a run out of a history that scripts/planted.py --pack has kept, and says what causes it
// is to be found to have.
func unpack(t *testing.T, path string) (dir string, causes []string) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	packed, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var files map[string]string
	if err := json.NewDecoder(packed).Decode(&files); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(files["causes"]), &causes); err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(t.TempDir(), strings.TrimSuffix(filepath.Base(path), ".json.gz"))
	for _, checkpoint := range strings.Fields(files["checkpoints"]) {
		files[checkpoint+"/manifest.json"] = "{}"
	}
	delete(files, "causes")
	delete(files, "checkpoints")
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir, causes
}

// In recorded runs with a planted fault it is named first, with a command that gyre what-if takes; of sound runs
// nothing is said.
func TestPlantedFaults(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.json.gz")
	if err != nil || len(paths) < 12 {
		t.Fatalf("%d recorded runs, %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			dir, want := unpack(t, path)
			run, err := rundir.Read(dir)
			if err != nil {
				t.Fatal(err)
			}
			h, err := Read(t.Context(), run)
			if err != nil {
				t.Fatal(err)
			}
			found, _ := Rank(h)
			shown := Table(run, found).Text(200)
			switch {
			case len(want) == 0 && len(found) > 0:
				t.Errorf("a false alarm:\n%s", shown)
			case len(want) > 0 && (len(found) == 0 || !slices.Contains(want, found[0].Cause)):
				t.Errorf("want %v first:\n%s", want, shown)
			}
			for i, s := range found {
				if command := s.Prove(run); i == 0 && !strings.HasPrefix(command, "gyre what-if "+dir+" --from ") {
					t.Errorf("%s: no command that proves it: %q", s.Cause, command)
				}
				for _, p := range s.Look {
					if p.Step < 1 || p.Step > 24 || p.Episode < 0 || p.Episode >= 128 {
						t.Errorf("%s: episode %d of step %d", s.Cause, p.Episode, p.Step)
					}
				}
			}
		})
	}
}
