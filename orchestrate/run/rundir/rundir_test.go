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
		if err := d.WriteInfo(Info{Step: i}); err != nil {
			t.Fatal(err)
		}
	}
	d.Log.Warnf("three %s", "times")
	info, err := ReadInfo(path)
	if err != nil || info.Step != 2 || len(info.ID) != 8 {
		t.Fatalf("run.json = %+v, %v", info, err)
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

// What killed processes left goes at the next opening, and a resumed run keeps its id.
func TestReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	d, err := Open(path, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.WriteInfo(Info{Name: "run"}); err != nil {
		t.Fatal(err)
	}
	id := d.ID
	d.Close()
	for _, name := range []string{".tmp-metrics.jsonl-1", "rollouts/.tmp-step_3.jsonl-2", "analysis/.tmp-x-3",
		"rollouts/step_2.jsonl"} {
		file := filepath.Join(path, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("half"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if d, err = Open(path, true); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.ID != id || d.Before == nil || d.Before.Name != "run" {
		t.Errorf("the id was %s and is %s, run.json before: %+v", id, d.ID, d.Before)
	}
	left, _ := filepath.Glob(filepath.Join(path, "*", ".tmp-*"))
	more, _ := filepath.Glob(filepath.Join(path, ".tmp-*"))
	if left = append(left, more...); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if _, err := os.Stat(filepath.Join(path, "rollouts", "step_2.jsonl")); err != nil {
		t.Error(err)
	}
}

// A run whose process was killed is recorded as failed by another, once; one that goes on, or has ended by itself, is
// left alone. A run that says that it goes on, while nobody holds its directory, has failed for whoever reads it; the
// file stays as it is.
func TestAbandonedRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	d, err := Open(path, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.WriteInfo(Info{Name: "run", Status: "running", Step: 3}); err != nil {
		t.Fatal(err)
	}
	if info, err := ReadInfo(path); err != nil || info.Status != "running" {
		t.Errorf("while it goes on: %+v, %v", info, err)
	}
	d.Close()
	for range 2 {
		if info, err := ReadInfo(path); err != nil || info.Status != "failed" ||
			!strings.Contains(info.Reason, "its process is gone") || info.Step != 3 {
			t.Errorf("afterwards: %+v, %v", info, err)
		}
	}
	if d, err = Open(path, true); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.Before.Status != "running" {
		t.Errorf("who continues it is told %q", d.Before.Status)
	}
	if err := os.Remove(filepath.Join(path, ".lock")); err != nil { // a copy without it says nothing
		t.Fatal(err)
	}
	if info, err := ReadInfo(path); err != nil || info.Status != "running" {
		t.Errorf("without a lock: %+v, %v", info, err)
	}
}

func TestDied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	if err := Died(path, "no run"); err == nil {
		if _, err := os.Stat(path); err == nil {
			t.Error("a directory was made for a run that never was")
		}
	}
	d, err := Open(path, false)
	if err != nil {
		t.Fatal(err)
	}
	status := func() string {
		t.Helper()
		info, err := ReadInfo(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Status + ": " + info.Reason
	}
	if err := d.WriteInfo(Info{Name: "run", Status: "running", Step: 3}); err != nil {
		t.Fatal(err)
	}
	lock := filepath.Join(path, ".lock")
	if err := os.WriteFile(lock, []byte("1\n"), 0o644); err != nil { // another process's
		t.Fatal(err)
	}
	if err := Died(path, "killed"); err != nil || status() != "running: " {
		t.Errorf("a run that goes on: %v, %s", err, status())
	}
	d.Close()
	for range 2 {
		if err := Died(path, "killed"); err != nil || status() != "failed: killed" {
			t.Errorf("%v, %s", err, status())
		}
	}
	if info, _ := ReadInfo(path); info.ID != d.ID || info.Step != 3 || info.Updated.IsZero() {
		t.Errorf("%+v", info)
	}
	if d, err = Open(path, true); err != nil {
		t.Fatal(err)
	}
	if err := d.WriteInfo(Info{Status: "running"}); err != nil {
		t.Fatal(err)
	}
	if err := Died(path, "hangs"); err != nil || status() != "failed: hangs" { // this process itself, elsewhere
		t.Errorf("%v, %s", err, status())
	}
	d.Close()
}

// A directory that cannot be made is refused before the run, and nothing is made.
func TestCheckOfADirectoryThatCannotBeMade(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(file, "run"), filepath.Join(file, "deep", "run")} {
		if err := Check(path, false); err == nil || !strings.Contains(err.Error(), "choose another run.output") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := Check(filepath.Join(dir, "new", "run"), false); err != nil {
		t.Error(err)
	}
	if there, _ := os.ReadDir(dir); len(there) != 1 {
		t.Errorf("the check made something: %v", there)
	}
}
