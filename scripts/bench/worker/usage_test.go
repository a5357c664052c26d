package worker

import (
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestOthersTime(t *testing.T) {
	before, begin := othersTime(os.Getpid()), time.Now()
	if before == 0 {
		t.Skip("this system does not say")
	}
	time.Sleep(100 * time.Millisecond)
	most := float64(runtime.NumCPU())*time.Since(begin).Seconds() + 0.1 // clocks tick in hundredths
	if others := othersTime(os.Getpid()) - before; others < 0 || others > most {
		t.Errorf("others had %.2f s, expected at most %.2f", others, most)
	}
	if gone := othersTime(1 << 30); gone != 0 {
		t.Errorf("beside a process that is gone: %v", gone)
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
