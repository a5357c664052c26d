package worker

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The kernel counts processor time in these units whatever the machine.
const tick = 10 * time.Millisecond

// ResetPeak makes the kernel forget the peak of a process's resident memory. Only Linux can.
func ResetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// Processor names the machine's processor.
func Processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOOS + " " + runtime.GOARCH
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOOS + " " + runtime.GOARCH
}

// HasBF16 reports whether the processor multiplies numbers of 16 bits: AVX512_BF16, AMX or Arm's bf16.
func HasBF16() bool {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		if key = strings.TrimSpace(key); key == "flags" || key == "Features" {
			has := strings.Fields(value)
			return slices.Contains(has, "avx512_bf16") || slices.Contains(has, "amx_bf16") ||
				slices.Contains(has, "bf16")
		}
	}
	return false
}

// PeakBytes is the peak of a process's resident memory since the last reset.
func PeakBytes(pid int) (int64, error) {
	path := fmt.Sprintf("/proc/%d/status", pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return peakBytes(path, string(text))
}

func peakBytes(path, status string) (int64, error) {
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("%s has no line VmHWM", path)
}

var errNoProcfs = errors.New("not the format of Linux's procfs")

// Times are the processor time that a process and the whole machine, the process included, have spent so far.
type Times struct{ Process, System time.Duration }

// Usage reads both. Only Linux can.
func Usage(pid int) (Times, error) {
	own, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Times{}, err
	}
	all, err := os.ReadFile("/proc/stat")
	if err != nil {
		return Times{}, err
	}
	var t Times
	if t.Process, err = processTime(string(own)); err != nil {
		return t, err
	}
	t.System, err = systemTime(string(all))
	return t, err
}

// systemTime adds up all time of the first line that is not idle, that which the hypervisor withheld included.
func systemTime(stat string) (time.Duration, error) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat: %w", errNoProcfs)
	}
	var sum int64
	for i, field := range fields[1:9] { // user nice system idle iowait irq softirq steal
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		if i != 3 && i != 4 {
			sum += n
		}
	}
	return time.Duration(sum) * tick, nil
}

// processTime reads the fields utime and stime, counted from behind the name, which may hold anything.
func processTime(stat string) (time.Duration, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/PID/stat: %w", errNoProcfs)
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("/proc/PID/stat: %w", err)
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("/proc/PID/stat: %w", err)
	}
	return time.Duration(user+system) * tick, nil
}
