package experiment

import (
	"testing"
	"time"
)

func TestShortRunsDoNotMeasureTheMachine(t *testing.T) {
	m := &Machine{opened: time.Now()}
	if err := m.Measure(); err != nil || m.FLOPs != 0 {
		t.Errorf("a short run has %v, %v", m, err)
	}
	m = &Machine{opened: time.Now().Add(-worthMeasuring), onDevice: true}
	if err := m.Measure(); err != nil || m.FLOPs != 0 {
		t.Errorf("models on a device have the CPU's peak: %v, %v", m, err)
	}
	m.onDevice = false
	if err := m.Measure(); err != nil || m.FLOPs <= 0 || m.Bandwidth <= 0 {
		t.Errorf("a longer run has %v, %v", m, err)
	}
}
