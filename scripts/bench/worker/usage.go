package worker

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"

	"github.com/prometheus/procfs"
)

// processor is the machine's first processor as the kernel describes it; empty where it does not.
var processor = sync.OnceValue(func() (first procfs.CPUInfo) {
	if system, err := procfs.NewDefaultFS(); err == nil {
		if all, err := system.CPUInfo(); err == nil && len(all) > 0 {
			first = all[0]
		}
	}
	return first
})

// Processor names the machine's processor.
func Processor() string { return cmp.Or(processor().ModelName, runtime.GOOS+" "+runtime.GOARCH) }

// HasBF16 reports whether the processor multiplies numbers of 16 bits: AVX512_BF16, AMX or Arm's bf16.
func HasBF16() bool {
	return slices.ContainsFunc([]string{"avx512_bf16", "amx_bf16", "bf16"}, func(flag string) bool {
		return slices.Contains(processor().Flags, flag)
	})
}

// ResetPeak makes the kernel forget the peak of a process's resident memory. Only Linux can.
func ResetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// PeakBytes is the peak of a process's resident memory since the last reset, 0 where the system does not say.
func PeakBytes(pid int) int64 {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0
	}
	status, _ := process.NewStatus() // 0 of a process that is gone
	return int64(status.VmHWM)
}

// othersTime is the processor time in seconds that the machine has spent so far on everything but a process, that which
// the hypervisor withheld included; 0 where the system does not say.
func othersTime(pid int) float64 {
	system, err := procfs.NewDefaultFS()
	if err != nil {
		return 0
	}
	machine, _ := system.Stat()
	process, _ := system.Proc(pid)
	own, err := process.Stat()
	if err != nil {
		return 0
	}
	all := machine.CPUTotal
	return all.User + all.Nice + all.System + all.IRQ + all.SoftIRQ + all.Steal - own.CPUTime()
}
