package weights

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/nlpodyssey/gopickle/types"
)

func load(data []byte) (v any, err error) {
	defer refused(&err)
	return archive{}.unpickle(data), nil
}

// show renders values in a fixed form.
func show(v any) string {
	all := func(items []any) string {
		var parts []string
		for _, x := range items {
			parts = append(parts, show(x))
		}
		return strings.Join(parts, ", ")
	}
	switch v := v.(type) {
	case *types.List:
		return "[" + all(*v) + "]"
	case *types.Tuple:
		return "(" + all(*v) + ")"
	case *types.Dict, *types.OrderedDict:
		var parts []string
		items, _ := members(v)
		for _, e := range items {
			parts = append(parts, show(e.Key)+": "+show(e.Value))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	default:
		return fmt.Sprintf("%#v", v)
	}
}

func TestValuesOfEveryProtocol(t *testing.T) {
	tuples := `((), ("x"), (1, 2), (1, 2, 3), (1, 2, 3, 4))`
	want := `{"numbers": [1, -2, 300, 70000, -70000, 1099511627776, -1099511627776, 4611686018427387904, 1.5, <nil>, true, false], ` +
		`"tuples": ` + tuples + `, "text é": "ünï", 5: {"k": []}, "again": ` + tuples + `}`
	for protocol := 2; protocol <= 5; protocol++ {
		data, err := os.ReadFile(fmt.Sprintf("testdata/pickle/protocol%d.pkl", protocol))
		if err != nil {
			t.Fatal(err)
		}
		v, err := load(data)
		if err != nil {
			t.Errorf("protocol %d: %v", protocol, err)
			continue
		}
		if got := show(v); got != want {
			t.Errorf("protocol %d:\n got %s\nwant %s", protocol, got, want)
		}
		for cut := range data { // no prefix is a pickle
			if _, err := load(data[:cut]); err == nil {
				t.Errorf("protocol %d: the first %d of %d bytes load", protocol, cut, len(data))
			}
		}
	}
}

// Whatever a pickle would import, instantiate or change, nothing but the listed names is reached.
func TestRefusals(t *testing.T) {
	const proto = "\x80\x02"
	ordered := "ccollections\nOrderedDict\n"
	size := "ctorch\nSize\n"
	for name, c := range map[string]struct{ data, want string }{
		"os.system":            {proto + "cos\nsystem\n(X\x02\x00\x00\x00idtR.", `before byte 13: refers to "os.system"`},
		"builtins.eval":        {proto + "cbuiltins\neval\n.", `"builtins.eval"`},
		"near miss":            {proto + "ccollections.OrderedDict\n__init__\n.", `"collections.OrderedDict.__init__"`},
		"STACK_GLOBAL":         {"\x80\x04\x8c\x02os\x8c\x06system\x93.", `refers to "os.system"`},
		"STACK_GLOBAL by dots": {"\x80\x04\x8c\x0bcollections\x8c\x14OrderedDict.__init__\x93.", `"collections.OrderedDict.__init__"`},
		"INST":                 {proto + "(S'id'\nios\nsystem\n.", "0x53 at byte 3 has no place"},
		"OBJ":                  {proto + "(cos\nsystem\no.", "0x6f at byte"},
		"NEWOBJ":               {proto + ordered + ")\x81.", "PyNewable"},
		"EXT1":                 {proto + "\x82\x01.", "0x82 at byte 2"},
		"BUILD on a value":     {proto + "K\x01}X\x01\x00\x00\x00aNsb.", "pickle"},
		"REDUCE of a value":    {proto + "ctorch\nFloatStorage\n)R.", "Callable"},
		"REDUCE of a string":   {proto + "X\x02\x00\x00\x00id)R.", "Callable"},
		"REDUCE without tuple": {proto + size + "]R.", "Tuple"},
		"too few arguments":    {proto + size + ")R.", "0 arguments"},
		"BINPERSID":            {proto + "K\x01Q.", "not a storage"},
		"protocol 6":           {"\x80\x06N.", "not a pickle of protocol 2 to 5"},
		"empty":                {"", "not a pickle"},
		"no STOP":              {proto + "N", "truncated"},
		"underflow":            {proto + "\x85.", "stack is empty"},
		"no mark":              {proto + "t.", "empty"},
		"text of 4 GB":         {proto + "X\xff\xff\xff\xffab.", "truncated"},
		"text of 2^64":         {"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xffab.", "truncated"},
		"text of 2^40":         {"\x80\x04\x8d\x00\x00\x00\x00\x00\x01\x00\x00.", "truncated"},
		"frame of 2^40":        {"\x80\x04\x95\x00\x00\x00\x00\x00\x01\x00\x00.", "truncated"},
		"bytearray":            {"\x80\x05\x96\x00\x00\x00\x00\x00\x00\x00\x00.", "0x96 at byte 2"},
		"bytes as a key":       {proto + ordered + ")R" + "C\x01aNs.", "pickle"},
		"odd items":            {proto + "}(Nu.", "pickle"},
		"append to a dict":     {proto + "}Na.", "pickle"},
		"unknown":              {proto + "\xff.", "0xff at byte 2"},
	} {
		v, err := load([]byte(c.data))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: value %v, error %v; want one with %q", name, v, err, c.want)
		}
	}
}

func FuzzPickle(f *testing.F) {
	for protocol := 2; protocol <= 5; protocol++ {
		data, err := os.ReadFile(fmt.Sprintf("testdata/pickle/protocol%d.pkl", protocol))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("\x80\x02ctorch\nFloatStorage\n)R."))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := load(data); err != nil && err.Error() == "" {
			t.Fatal("an error without a word")
		}
	})
}
