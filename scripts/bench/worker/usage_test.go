package worker

import (
	"os"
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
	if used, err := systemTime("cpu  100 20 30 9999 8888 5 5 40 0 0\ncpu0 1 2 3\n"); err != nil ||
		used != 2*time.Second {
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
