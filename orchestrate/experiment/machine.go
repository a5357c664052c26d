package experiment

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"gyre/torch"
)

// Machine is what computes: its number of threads, and its peak as far as it has been measured.
type Machine struct {
	Bandwidth, FLOPs float64 // the CPU kernels' peak in bytes and operations per second; 0 until measured

	opened   time.Time
	chosen   bool // somebody chose the number of threads
	onDevice bool // the models are not computed by the CPU's kernels
}

// worthMeasuring is how long a command must have run before it spends half a second on measuring the machine.
const worthMeasuring = 10 * time.Second

// clearlyFaster is how much more arithmetic fewer threads must do to be preferred: less is noise.
const clearlyFaster = 1.1

// OpenMachine fixes the number of kernel threads; 0 leaves the default, which is GYRE_THREADS or the number of usable cores. warn is told
// where fewer threads are used than asked for.
func OpenMachine(threads int, on torch.Placement, warn func(format string, args ...any)) (*Machine, error) {
	m := &Machine{opened: time.Now(), onDevice: on.Device != "cpu" && on.Device != "", chosen: threads > 0}
	source := "run.threads"
	if text := os.Getenv("GYRE_THREADS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("GYRE_THREADS is %q, expected a number of threads from 1 to %d (unset it for all of them)", text, runtime.NumCPU())
		}
		if threads == 0 {
			threads, source, m.chosen = n, "GYRE_THREADS", true
		}
	}
	if threads == 0 {
		return m, nil
	}
	if cores := runtime.NumCPU(); threads > cores {
		warn("%s = %d, but this process may use %d cores: %d threads are used", source, threads, cores, cores)
		threads = cores
	}
	if err := torch.SetThreads(threads); err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	return m, nil
}

// Measure finds the machine's peak once the command has run for a while and, unless the number of threads was given, the number that
// reaches it: where two threads share a core, or other programs keep some busy, fewer can be faster. Results do not depend on it.
func (m *Machine) Measure() error {
	if m.onDevice || m.FLOPs > 0 || time.Since(m.opened) < worthMeasuring {
		return nil
	}
	most := torch.Threads()
	candidates := []int{most}
	if !m.chosen && most > 1 {
		candidates = append(candidates, (most+1)/2)
	}
	best := most
	for _, n := range candidates {
		if err := torch.SetThreads(n); err != nil {
			return err
		}
		bandwidth, flops, err := torch.Measure()
		if err != nil {
			return fmt.Errorf("measuring the machine: %w", err)
		}
		if flops > clearlyFaster*m.FLOPs {
			best, m.Bandwidth, m.FLOPs = n, bandwidth, flops
		}
	}
	return torch.SetThreads(best)
}
