package trainer

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// physicalMemory is what this process may fill: the machine's memory or its control group's limit, whichever is less; 0 when neither can be
// read (on other systems than Linux).
func physicalMemory() int64 {
	memory := int64(0)
	if data, err := os.ReadFile("/proc/meminfo"); err == nil {
		memory = parseMemTotal(data)
	}
	if data, err := os.ReadFile("/sys/fs/cgroup/memory.max"); err == nil {
		limit, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64) // "max" when there is none
		if err == nil && (memory == 0 || limit < memory) {
			memory = limit
		}
	}
	return memory
}

// parseMemTotal reads the line "MemTotal: N kB"; 0 without it.
func parseMemTotal(meminfo []byte) int64 {
	for line := range bytes.Lines(meminfo) {
		var kib int64
		if n, _ := fmt.Sscanf(string(line), "MemTotal: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	return 0
}
