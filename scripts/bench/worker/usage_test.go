package worker

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"
)

func TestProcfs(t *testing.T) {
	status := "Name:\tpython\nVmPeak:\t 999 kB\nVmHWM:\t  1024 kB\nVmRSS:\t  512 kB\n"
	if peak, err := peakBytes("status", status); err != nil || peak != 1<<20 {
		t.Errorf("peak of %d bytes (%v), expected 1 MiB", peak, err)
	}
	if _, err := peakBytes("status", "Name:\tx\n"); err == nil {
		t.Error("a status without a peak gives no error")
	}
	// A name may hold spaces and brackets; utime is 150 ticks, stime 50.
	stat := "12 (a) b (c) S 1 1 1 0 -1 4194304 100 0 0 0 150 50 0 0 20 0 3 0 100 1000 10"
	if used, err := processTime(stat); err != nil || used != 2*time.Second {
		t.Errorf("processor time %v (%v), expected 2 s", used, err)
	}
	if _, err := processTime("12 (a) S"); err == nil {
		t.Error("a stat that is cut off gives no error")
	}
	// Idle and iowait, the fourth and fifth, do not count.
	if used, err := systemTime("cpu  100 20 30 9999 8888 5 5 40 0 0\ncpu0 1 2 3\n"); err != nil || used != 2*time.Second {
		t.Errorf("system time %v (%v), expected 2 s", used, err)
	}
	if _, err := systemTime("intr 5"); err == nil {
		t.Error("another file gives no error")
	}
}

func TestPeakIsForgotten(t *testing.T) {
	debug.FreeOSMemory() // what is kept for later would hide the block
	if err := ResetPeak(os.Getpid()); err != nil {
		t.Skip("this system keeps the peak:", err)
	}
	before, err := PeakBytes(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 64<<20)
	for i := 0; i < len(block); i += 4096 {
		block[i] = 1
	}
	after, err := PeakBytes(os.Getpid())
	if err != nil || after < before+60<<20 {
		t.Errorf("the peak rose from %d to %d bytes (%v) by a block of 64 MiB", before, after, err)
	}
	if block[4096] != 1 {
		t.Error("the block is gone")
	}
}

func TestPythonIsFoundInOrder(t *testing.T) {
	dir := t.TempDir()
	make := func(path string) string {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	given, named, installed, active, plain := make("given/python"), make("named/python"), make("peers/vllm/bin/python"), make("active/bin/python"), make("bin/python3")
	expect := func(given, peers, path, source string) {
		t.Helper()
		got, from, err := Python("vllm", given, peers)
		if err != nil || got != path || from != source {
			t.Errorf("found %q by %q (%v), expected %q by %q", got, from, err, path, source)
		}
	}
	peers := filepath.Join(dir, "peers")
	t.Setenv("GYRE_BENCH_VLLM_PYTHON", named)
	t.Setenv("VIRTUAL_ENV", filepath.Join(dir, "active"))
	t.Setenv("PATH", filepath.Join(dir, "bin"))
	expect(given, peers, given, "--python")
	expect("", peers, named, "GYRE_BENCH_VLLM_PYTHON")
	t.Setenv("GYRE_BENCH_VLLM_PYTHON", "")
	expect("", peers, installed, peers)
	expect("", filepath.Join(dir, "elsewhere"), active, "VIRTUAL_ENV")
	t.Setenv("VIRTUAL_ENV", "")
	expect("", "", plain, "PATH")
	if _, _, err := Python("vllm", filepath.Join(dir, "nothing"), ""); err == nil {
		t.Error("a Python that is named but not there is passed over")
	}
	if Preload(installed) != "" {
		t.Error("a library that is not there is preloaded")
	}
	library := make("peers/vllm/lib/libiomp5.so")
	if Preload(installed) != library {
		t.Errorf("Preload gives %q, expected %q", Preload(installed), library)
	}
}
