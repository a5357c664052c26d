package weights

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/nlpodyssey/gopickle/pickle"
	"github.com/nlpodyssey/gopickle/types"
)

// The instructions of protocols 2 to 5 that a checkpoint may use: those alone, those before a number and those before
// bytes and their count, with the width of the number in bytes. GLOBAL, which lines follow, comes on top.
const simple = "N\x88\x89]}()\x85\x86\x87t\x94\x93R\x81Qaesub."

var (
	numbered = map[byte]uint64{0x80: 1, 'K': 1, 'M': 2, 'J': 4, 'G': 8, 'q': 1, 'r': 4, 'h': 1, 'j': 4}
	counted  = map[byte]uint64{0x8a: 1, 0x8c: 1, 'X': 4, 0x8d: 8, 'C': 1, 'B': 4, 0x8e: 8, 0x95: 8}
)

// checkPickle refuses other instructions, and those that claim more bytes than there are: the reader believes them.
func checkPickle(data []byte) {
	if len(data) < 2 || data[0] != 0x80 || data[1] < 2 || data[1] > 5 {
		refuse("not a pickle of protocol 2 to 5")
	}
	rest := data
	take := func(n uint64) []byte {
		if n > uint64(len(rest)) {
			refuse("pickle: needs %d bytes at byte %d, %d are left: truncated?", n, len(data)-len(rest), len(rest))
		}
		taken := rest[:n]
		rest = rest[n:]
		return taken
	}
	for code := byte(0); code != '.'; {
		at := len(data) - len(rest)
		code = take(1)[0]
		if strings.IndexByte(simple, code) >= 0 {
			continue
		}
		if code == 'c' { // GLOBAL: a module and a name
			for range 2 {
				take(uint64(bytes.IndexByte(rest, '\n') + 1))
			}
		} else if width, ok := numbered[code]; ok {
			take(width)
		} else if width, ok := counted[code]; ok {
			var padded [8]byte
			copy(padded[:], take(width))
			before := rest
			if take(binary.LittleEndian.Uint64(padded[:])); code == 0x95 { // FRAME: instructions
				rest = before
			}
		} else {
			refuse("pickle: instruction 0x%02x at byte %d has no place in a checkpoint (nothing was executed)", code,
				at)
		}
	}
}

// function stands for a Python function: what is computed instead of calling it.
type function func(args types.Tuple) any

// Call implements types.Callable.
func (f function) Call(args ...any) (any, error) { return f(args), nil }

// unpickle reads a pickle as data. What it would import is refused unless its name is known here, where torch's
// functions and classes have stand-ins; nothing of Python runs.
func (a archive) unpickle(data []byte) any {
	checkPickle(data)
	known := map[string]any{
		"torch.Size":                                 function(func(args types.Tuple) any { return argument[any](args, 0) }),
		"torch._utils._rebuild_tensor_v2":            function(a.rebuildTensor),
		"torch._utils._rebuild_parameter":            function(rebuildParameter),
		"torch._utils._rebuild_parameter_with_state": function(rebuildParameter),
	}
	for name, dtype := range map[string]DType{"Float": F32, "Half": F16, "BFloat16": BF16, "Double": F64, "Long": I64,
		"Int": I32, "Short": I16, "Char": I8, "Byte": U8, "Bool": Bool} {
		known["torch."+name+"Storage"] = storageType(dtype)
	}
	for d := range dtypes { // dtypes as values beside the weights
		known["torch."+DType(d).String()] = DType(d)
	}
	rest := bytes.NewReader(data)
	u := pickle.NewUnpickler(rest)
	u.FindClass = func(module, name string) (any, error) {
		if v, ok := known[module+"."+name]; ok {
			return v, nil
		}
		return nil, fmt.Errorf("refers to %q, which is not on the list of what a checkpoint may contain (nothing was "+
			"executed)", module+"."+name)
	}
	u.PersistentLoad = a.persistent
	defer func() {
		switch r := recover().(type) {
		case nil:
		case refusal:
			panic(r)
		default: // what a malformed pickle makes of the reader
			refuse("pickle: before byte %d: %v", len(data)-rest.Len(), r)
		}
	}()
	root, err := u.Load()
	if err != nil {
		refuse("pickle: before byte %d: %w", len(data)-rest.Len(), err)
	}
	return root
}

// argument is an argument of a call, which must be of type T.
func argument[T any](args types.Tuple, i int) T {
	if i >= len(args) {
		refuse("a call with %d arguments, expected more than %d", len(args), i)
	}
	v, ok := args[i].(T)
	if !ok {
		refuse("argument %d of a call is a %s, expected a %s", i, typeName(args[i]), typeName(v))
	}
	return v
}

// typeName is the name of a value's type, for messages: "Dict".
func typeName(v any) string {
	name := fmt.Sprintf("%T", v)
	return name[strings.LastIndexByte(name, '.')+1:]
}
