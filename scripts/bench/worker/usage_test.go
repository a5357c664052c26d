package worker

import (
	"os"
	"runtime/debug"
	"testing"
	"time"
)

func TestProcfs(t *testing.T) {
	status := "Name:\tpython\nVmPeak:\t 999 kB\nVmHWM:\t  1024 kB\nVmRSS:\t  512 kB\n"
	if peak := peakBytes(status); peak != 1<<20 {
		t.Errorf("peak of %d bytes, expected 1 MiB", peak)
	}
	if peak := peakBytes("Name:\tx\n"); peak != 0 {
		t.Errorf("a status without a peak gives %d bytes", peak)
	}
	// A name may hold spaces and brackets; utime is 150 ticks, stime 50.
	stat := "12 (a) b (c) S 1 1 1 0 -1 4194304 100 0 0 0 150 50 0 0 20 0 3 0 100 1000 10"
	if used := processTime(stat); used != 2*time.Second {
		t.Errorf("processor time %v, expected 2 s", used)
	}
	if used := processTime("12 (a) S"); used != 0 {
		t.Errorf("a stat that is cut off gives %v", used)
	}
	// Idle and iowait, the fourth and fifth, do not count.
	if used := systemTime("cpu  100 20 30 9999 8888 5 5 40 0 0\ncpu0 1 2 3\n"); used != 2*time.Second {
		t.Errorf("system time %v, expected 2 s", used)
	}
	if used := systemTime("intr 5"); used != 0 {
		t.Errorf("another file gives %v", used)
	}
}

func TestPeakIsForgotten(t *testing.T) {
	debug.FreeOSMemory() // what is kept for later would hide the block
	if err := ResetPeak(os.Getpid()); err != nil {
		t.Skip("this system keeps the peak:", err)
	}
	before := PeakBytes(os.Getpid())
	block := make([]byte, 64<<20)
	for i := 0; i < len(block); i += 4096 {
		block[i] = 1
	}
	after := PeakBytes(os.Getpid())
	if before == 0 || after < before+60<<20 {
		t.Errorf("the peak rose from %d to %d bytes by a block of 64 MiB", before, after)
	}
	if block[4096] != 1 {
		t.Error("the block is gone")
	}
}
