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
	// The CPU kernels' peak in bytes and, in the models' type, operations per second; 0 until measured.
	Bandwidth, FLOPs float64

	opened   time.Time
	next     time.Time // when to look again
	most     int       // threads that the command began with; 0 until measured
	chosen   bool      // somebody chose the number of threads
	onDevice bool      // the models are not computed by the CPU's kernels

	// The machine itself, or a test's.
	measure    func() (bandwidth, flops float64, err error)
	setThreads func(int) error
	threads    func() int
}

// newMachine is the one that this process runs on, for models that compute in a type.
func newMachine(in torch.Compute) *Machine {
	return &Machine{opened: time.Now(), setThreads: torch.SetThreads, threads: torch.Threads,
		measure: func() (bandwidth, flops float64, err error) { return torch.Measure(in) }}
}

// worthMeasuring is how long a command must have run before it spends half a second on measuring the machine.
const worthMeasuring = 10 * time.Second

// clearlyFaster is how much more arithmetic fewer threads must do to be preferred: less is noise.
const clearlyFaster = 1.1

// samples is how often fewer threads must be clearly faster, patience how long that is believed.
const (
	samples  = 3
	patience = 5 * time.Minute
)

// OpenMachine fixes the number of kernel threads; 0 leaves the default, which is GYRE_THREADS or the number of usable
// cores. warn is told where fewer threads are used than asked for.
func OpenMachine(threads int, on torch.Placement, warn func(format string, args ...any)) (*Machine, error) {
	m := newMachine(on.Compute)
	m.onDevice, m.chosen = on.Device != "cpu" && on.Device != "", threads > 0
	source := "run.threads"
	if text := os.Getenv("GYRE_THREADS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("GYRE_THREADS is %q, expected a number of threads from 1 to %d (unset it for all "+
				"of them)", text, runtime.NumCPU())
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

// Measure finds the machine's peak once the command has run for a while and, unless the number of threads was given,
// the number that reaches it: where two threads share a core, or other programs keep some busy, fewer can be faster.
// One noisy moment decides nothing: fewer threads must be faster every time, and are judged anew later. Results do
// not depend on any of it.
func (m *Machine) Measure() error {
	if m.onDevice || time.Now().Before(m.next) || time.Since(m.opened) < worthMeasuring {
		return nil
	}
	m.next = time.Now().Add(patience)
	if m.most == 0 {
		m.most = m.threads()
	}
	if m.FLOPs > 0 && m.threads() == m.most {
		return nil // all threads it is, and the peak is known
	}
	fewer := (m.most + 1) / 2
	for sample := range samples {
		bandwidth, flops, err := m.sample(m.most)
		if err != nil {
			return err
		}
		if m.chosen || fewer == m.most {
			m.Bandwidth, m.FLOPs = bandwidth, flops
			return nil
		}
		less, lessFLOPs, err := m.sample(fewer)
		if err != nil {
			return err
		}
		if lessFLOPs <= clearlyFaster*flops {
			m.Bandwidth, m.FLOPs = bandwidth, flops
			return m.setThreads(m.most)
		}
		if sample == samples-1 {
			m.Bandwidth, m.FLOPs = less, lessFLOPs
		}
	}
	return nil
}

func (m *Machine) sample(threads int) (bandwidth, flops float64, err error) {
	if err := m.setThreads(threads); err != nil {
		return 0, 0, err
	}
	bandwidth, flops, err = m.measure()
	if err != nil {
		return 0, 0, fmt.Errorf("measuring the machine: %w", err)
	}
	return bandwidth, flops, nil
}
