package worker

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"

	"github.com/prometheus/procfs"
)

// cpuinfo is the value of the first line "name: value" of /proc/cpuinfo, "" where there is none.
func cpuinfo(name string) string {
	text, _ := os.ReadFile("/proc/cpuinfo") // Linux alone has it
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Processor names the machine's processor.
func Processor() string {
	if name := cpuinfo("model name"); name != "" {
		return name
	}
	return runtime.GOOS + " " + runtime.GOARCH
}

var bf16 = regexp.MustCompile(`\b(avx512_bf16|amx_bf16|bf16)\b`)

// HasBF16 reports whether the processor multiplies numbers of 16 bits: AVX512_BF16, AMX or Arm's bf16.
func HasBF16() bool { return bf16.MatchString(cpuinfo("flags") + " " + cpuinfo("Features")) }

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
