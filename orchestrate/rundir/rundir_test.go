package rundir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestANewRunNeverWritesIntoAnOldOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	d, err := Open(path, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.File("metrics.jsonl"), []byte("{\"step\":0}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal("closing twice:", err)
	}
	if _, err := Open(path, false); !errors.Is(err, ErrExists) || !strings.Contains(err.Error(), "--resume") {
		t.Fatalf("got %v", err)
	}
	d, err = Open(path, true)
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
}

func TestARunThatNeverBeganIsNotInTheWay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	d, err := Open(path, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.WriteConfig([]byte("[run]\n")); err != nil {
		t.Fatal(err)
	}
	d.Close() // killed before its first metrics
	if d, err = Open(path, false); err != nil {
		t.Fatal(err)
	}
	if err := d.Discard(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatal("Discard removed a directory that was there before:", err)
	}
	if d, err = Open(path+"2", false); err != nil {
		t.Fatal(err)
	}
	if err := d.Discard(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path + "2"); !os.IsNotExist(err) {
		t.Fatalf("the directory of a run that could not start is still there (%v)", err)
	}
}

func TestTwoProcessesCannotShareADirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	d, err := Open(path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	_, err = Open(path, true)
	if err == nil || !strings.Contains(err.Error(), "in use by process") {
		t.Fatalf("got %v", err)
	}
}

func TestInfoIsReplacedWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	d, err := Open(path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	d.Log.Console = nil
	for i := range 3 {
		if err := d.WriteInfo(map[string]int{"n": i}); err != nil {
			t.Fatal(err)
		}
	}
	d.Log.Warnf("three %s", "times")
	data, err := os.ReadFile(d.File("run.json"))
	if err != nil || string(data) != "{\n  \"n\": 2\n}\n" {
		t.Fatalf("run.json = %q, %v", data, err)
	}
	log, err := os.ReadFile(d.File("log.txt"))
	if err != nil || !strings.Contains(string(log), "warning: three times") {
		t.Fatalf("log.txt = %q, %v", log, err)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".tmp-") {
			t.Errorf("left behind: %s", e.Name())
		}
	}
}
