package worker

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// The kernel counts processor time in these units whatever the machine.
const tick = 10 * time.Millisecond

// procfs is a file of Linux's procfs, "" on other systems and of processes that are gone.
func procfs(format string, args ...any) string {
	text, err := os.ReadFile("/proc/" + fmt.Sprintf(format, args...))
	if err != nil {
		return ""
	}
	return string(text)
}

// field is the value of a line "name: value", "" where there is none.
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// ResetPeak makes the kernel forget the peak of a process's resident memory. Only Linux can.
func ResetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// Processor names the machine's processor.
func Processor() string {
	if name := field(procfs("cpuinfo"), "model name"); name != "" {
		return name
	}
	return runtime.GOOS + " " + runtime.GOARCH
}

var bf16 = regexp.MustCompile(`\b(avx512_bf16|amx_bf16|bf16)\b`)

// HasBF16 reports whether the processor multiplies numbers of 16 bits: AVX512_BF16, AMX or Arm's bf16.
func HasBF16() bool {
	text := procfs("cpuinfo")
	return bf16.MatchString(field(text, "flags") + " " + field(text, "Features"))
}

// PeakBytes is the peak of a process's resident memory since the last reset, 0 where the system does not say.
func PeakBytes(pid int) int64 { return peakBytes(procfs("%d/status", pid)) }

func peakBytes(status string) int64 {
	kib, _ := strconv.ParseInt(strings.TrimSuffix(field(status, "VmHWM"), " kB"), 10, 64)
	return kib << 10
}

// othersTime is the processor time that the machine has spent so far on everything but a process, 0 where the system
// does not say.
func othersTime(pid int) time.Duration {
	return systemTime(procfs("stat")) - processTime(procfs("%d/stat", pid))
}

// systemTime adds up all time of the first line that is not idle, that which the hypervisor withheld included.
func systemTime(stat string) time.Duration {
	line, _, _ := strings.Cut(stat, "\n")
	f := strings.Fields(line) // cpu user nice system idle iowait irq softirq steal …
	if len(f) < 9 || f[0] != "cpu" {
		return 0
	}
	return ticks(f[1], f[2], f[3], f[6], f[7], f[8])
}

// processTime reads the fields utime and stime, counted from behind the name, which may hold anything.
func processTime(stat string) time.Duration {
	f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(f) < 13 {
		return 0
	}
	return ticks(f[11], f[12])
}

func ticks(fields ...string) (sum time.Duration) {
	for _, field := range fields {
		n, _ := strconv.ParseInt(field, 10, 64) // procfs writes numbers
		sum += time.Duration(n) * tick
	}
	return sum
}
