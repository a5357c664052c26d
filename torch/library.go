package torch

/*
#cgo CFLAGS: -I${SRCDIR}/../csrc
#cgo linux LDFLAGS: -ldl
#cgo !linux LDFLAGS: -L${SRCDIR}/../build -lgyre
#cgo !gyre_installed LDFLAGS: -Wl,-rpath,${SRCDIR}/../build
#cgo gyre_installed LDFLAGS: -Wl,-rpath,$ORIGIN/../lib/gyre
#include <stdlib.h>
#include "gyre.h"
#include "library.h"
*/
import "C"

import (
	"fmt"
	"strings"
	"sync"
	"unsafe"
)

// Load loads libgyre, and with it libtorch, which the first call that needs them does by itself. It takes about 0.2
// seconds; later calls return what the first did.
func Load() error { return load() }

// Nothing of gyre.h may be called before load has returned nil.
var load = sync.OnceValue(func() error {
	if err := open("libgyre.so"); err != nil {
		return err
	}
	return checkABI(int(C.gyre_abi_version()))
})

func open(library string) error {
	name := C.CString(library)
	defer C.free(unsafe.Pointer(name))
	reason := C.gyre_load(name)
	if reason == nil {
		return nil
	}
	why := C.GoString(reason)
	// glibc's words.
	if strings.Contains(why, "failed to map segment") || strings.Contains(why, "annot allocate memory") {
		return &Error{Kind: ErrOutOfMemory, Message: "out of memory: the library cannot be loaded: " + why}
	}
	return &Error{Kind: ErrUnsupported, Message: fmt.Sprintf("the library cannot be loaded: %s; run make lib, or "+
		"install Gyre once more", why)}
}

func checkABI(library int) error {
	if library == C.GYRE_ABI_VERSION {
		return nil
	}
	return &Error{Kind: ErrUnsupported, Message: fmt.Sprintf("libgyre has ABI version %d but this program was built "+
		"for %d: rebuild csrc (cmake --build build), then the program", library, C.GYRE_ABI_VERSION)}
}
