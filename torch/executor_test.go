package torch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
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

// The list of functions in library_linux.c is the header's.
func TestEveryFunctionIsLoaded(t *testing.T) {
	header, err := os.ReadFile("../csrc/gyre.h")
	if err != nil {
		t.Fatal(err)
	}
	loader, err := os.ReadFile("library_linux.c")
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^[a-z].*?\bgyre_(\w+)\(`).FindAllSubmatch(header, -1)
	listed := regexp.MustCompile(`F\((\w+)\)`).FindAllSubmatch(loader, -1)
	names := func(all [][][]byte) (s []string) {
		for _, m := range all {
			s = append(s, string(m[1]))
		}
		slices.Sort(s)
		return s
	}
	if a, b := names(declared), names(listed); len(a) < 60 || !slices.Equal(a, b) {
		t.Errorf("gyre.h declares %q\nlibrary_linux.c loads %q", a, b)
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

// What Go and gyre.h both declare has the same fields, types and offsets. ModelConfig and PolicyStats go on where C's
// fields end, or hold them in another form from there on.
func TestStructsLieAsThoseOfC(t *testing.T) {
	fields := map[reflect.Type]int{reflect.TypeFor[ModelConfig](): 24, reflect.TypeFor[PolicyStats](): 3}
	plain := func(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }
	for g, c := range mirrors {
		n, prefix := fields[g]
		if !prefix {
			if n = g.NumField(); g.Size() != c.Size() {
				t.Errorf("%v has %d bytes, %v %d", g, g.Size(), c, c.Size())
			}
		}
		var ofC []reflect.StructField
		for f := range c.NumField() {
			if name := c.Field(f).Name; name != "_" {
				ofC = append(ofC, c.Field(f))
			}
		}
		for i := range n {
			a, b := g.Field(i), ofC[min(i, len(ofC)-1)]
			same := a.Type.Kind() == b.Type.Kind() || a.Type.Kind() == reflect.Int && b.Type.Kind() == reflect.Int64
			if plain(a.Name) != plain(b.Name) || a.Offset != b.Offset || a.Type.Size() != b.Type.Size() || !same {
				t.Errorf("%v.%s %v at %d, but %s %v at %d in gyre.h", g, a.Name, a.Type, a.Offset, b.Name, b.Type,
					b.Offset)
			}
			if a.Type.Kind() == reflect.Struct && mirrors[a.Type] != b.Type {
				t.Errorf("%v.%s is no mirror of %v", g, a.Name, b.Type)
			}
		}
	}
}
