package torch

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestPanicsReachTheCaller(t *testing.T) {
	defer func() {
		if p := recover(); p != "boom" {
			t.Errorf("recovered %v", p)
		}
		execute(func() {}) // the executor goes on
	}()
	execute(func() { panic("boom") })
	t.Error("the panic was lost")
}

func TestAnotherABIIsRefused(t *testing.T) {
	err := checkABI(999)
	if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "rebuild") {
		t.Errorf("got %v", err)
	}
}

func TestStatusesHaveSentinels(t *testing.T) {
	all := []error{ErrInvalidArgument, ErrOutOfMemory, ErrNotFound, ErrNotFinite, ErrUnsupported, ErrInternal}
	for s := StatusInvalidArgument; s <= StatusInternal; s++ {
		err := fmt.Errorf("step 3: %w", &Error{Status: s, Message: "m"})
		for i, sentinel := range all {
			if want := i == int(s)-1; errors.Is(err, sentinel) != want {
				t.Errorf("status %d is %v: %v", s, sentinel, !want)
			}
		}
	}
}

func TestProcess(t *testing.T) {
	before := Threads()
	if err := SetThreads(1); err != nil || Threads() != 1 {
		t.Errorf("threads %d, %v", Threads(), err)
	}
	if err := SetThreads(before); err != nil {
		t.Error(err)
	}
	for _, n := range []int{0, 1 << 20} {
		if err := SetThreads(n); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("%d threads: %v", n, err)
		}
	}
	if !strings.HasPrefix(BuildInfo(), "torch 2.") {
		t.Errorf("build info %q", BuildInfo())
	}
	if PeakRSS() < 1<<20 {
		t.Errorf("peak memory %d", PeakRSS())
	}
}
