package torch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
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

func TestALibraryThatCannotBeLoaded(t *testing.T) {
	for library, want := range map[string]string{
		"libgyre-missing.so": "libgyre-missing.so",
		"libc.so.6":          "undefined symbol: gyre_", // a library, but not this one
	} {
		err := open(library)
		if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "make lib") {
			t.Errorf("%s: %v", library, err)
		}
	}
}

func TestErrorsAreOfTheirKind(t *testing.T) {
	err := fmt.Errorf("step 3: %w", &Error{Kind: ErrNotFinite, Message: "m"})
	if !errors.Is(err, ErrNotFinite) || errors.Is(err, ErrInternal) || err.Error() != "step 3: torch: m" {
		t.Error(err)
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

// The peak is that of the process, not of the larger one that has started it, which getrusage would say.
func TestPeakMemoryIsNotTheParents(t *testing.T) {
	if os.Getenv("GYRE_TEST_PEAK") != "" {
		fmt.Printf("peak %d\n", PeakRSS())
		return
	}
	const held = 1 << 30
	large, err := syscall.Mmap(-1, 0, held, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(large)
	for i := 0; i < held; i += 4096 {
		large[i] = 1
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(self, "-test.run=^TestPeakMemoryIsNotTheParents$", "-test.v")
	command.Env = append(os.Environ(), "GYRE_TEST_PEAK=1")
	out, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(out), "peak ")
	var peak int64
	if _, err := fmt.Sscan(after, &peak); err != nil || peak < 1<<20 || peak >= held {
		t.Errorf("started by a process of more than 1 GiB: peak %d (%v), expected its own\n%s", peak, err, out)
	}
}
