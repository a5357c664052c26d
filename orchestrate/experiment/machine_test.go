package experiment

import (
	"strings"
	"testing"
	"time"

	"gyre/torch"
)

func TestShortRunsDoNotMeasureTheMachine(t *testing.T) {
	m := newMachine(torch.ComputeF32)
	if err := m.Measure(); err != nil || m.FLOPs != 0 {
		t.Errorf("a short run has %v, %v", m, err)
	}
	m.opened, m.onDevice = time.Now().Add(-worthMeasuring), true
	if err := m.Measure(); err != nil || m.FLOPs != 0 {
		t.Errorf("models on a device have the CPU's peak: %v, %v", m, err)
	}
	m.onDevice, m.chosen = false, true
	if err := m.Measure(); err != nil || m.FLOPs <= 0 || m.Bandwidth <= 0 {
		t.Errorf("a longer run has %v, %v", m, err)
	}
}

// One noisy sample does not halve the threads; several in a row do, until a later look finds all of them as fast again.
func TestThreadsFollowConsistentSamples(t *testing.T) {
	threads := 8
	var speeds []float64 // in the order of samples: all threads, half of them, all …
	m := &Machine{opened: time.Now().Add(-worthMeasuring), threads: func() int { return threads },
		setThreads: func(n int) error { threads = n; return nil }}
	m.measure = func() (float64, float64, error) {
		flops := speeds[0]
		speeds = speeds[1:]
		return flops / 10, flops, nil
	}
	for _, x := range []struct {
		name   string
		speeds []float64
		want   int
		peak   float64
	}{
		{"hardly faster", []float64{100, 109}, 8, 100},
		{"a noisy moment", []float64{50, 100, 110, 60}, 8, 110},
		{"the peak is known", nil, 8, 110},
	} {
		if speeds, m.next = x.speeds, (time.Time{}); len(speeds) > 0 {
			m.FLOPs = 0
		}
		if err := m.Measure(); err != nil || threads != x.want || m.FLOPs != x.peak || len(speeds) > 0 {
			t.Errorf("%s: %d threads, peak %v, %d samples left, %v; want %d and %v", x.name, threads, m.FLOPs,
				len(speeds), err, x.want, x.peak)
		}
	}
	m.FLOPs = 0
	for _, x := range []struct {
		name   string
		speeds []float64
		want   int
		peak   float64
	}{
		{"shared cores", []float64{50, 100, 51, 101, 52, 102}, 4, 102},
		{"still shared", []float64{50, 100, 50, 100, 50, 99}, 4, 99},
		{"the other program has ended", []float64{200, 100}, 8, 200},
	} {
		speeds, m.next = x.speeds, time.Time{}
		if err := m.Measure(); err != nil || threads != x.want || m.FLOPs != x.peak || len(speeds) > 0 {
			t.Errorf("%s: %d threads, peak %v, %d samples left, %v; want %d and %v", x.name, threads, m.FLOPs,
				len(speeds), err, x.want, x.peak)
		}
	}
	if err := m.Measure(); err != nil { // too early to look again: no sample is taken
		t.Error(err)
	}
}

func TestImpossibleThreads(t *testing.T) {
	before := torch.Threads()
	defer torch.SetThreads(before)
	var warned []string
	warn := func(format string, args ...any) { warned = append(warned, format) }
	for _, text := range []string{"abc", "0", "-1", "1.5"} {
		t.Setenv("GYRE_THREADS", text)
		if _, err := OpenMachine(0, torch.Placement{}, warn); err == nil ||
			!strings.Contains(err.Error(), "GYRE_THREADS") {
			t.Errorf("GYRE_THREADS=%s: %v", text, err)
		}
	}
	for _, x := range []struct {
		env     string
		threads int
	}{{"", 1000}, {"100000", 0}} {
		t.Setenv("GYRE_THREADS", x.env)
		warned = nil
		if _, err := OpenMachine(x.threads, torch.Placement{}, warn); err != nil || len(warned) != 1 ||
			torch.Threads() > 512 {
			t.Errorf("%+v: %d threads, warnings %q, %v", x, torch.Threads(), warned, err)
		}
	}
}
