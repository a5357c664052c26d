package weights

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

var testHost = pickleHost{
	globals: map[string]any{"collections.OrderedDict": pyFunc(func(pyTuple) any { return &pyDict{} }),
		"torch.FloatStorage": 7},
	persistent: func(any) any { refuse("no storage here"); return nil },
}

func load(data []byte) (v any, err error) {
	defer refused(&err)
	return loadPickle(data, testHost), nil
}

// show renders values in a fixed form.
func show(v any) string {
	switch v := v.(type) {
	case *pyList:
		return "[" + showAll(v.items) + "]"
	case pyTuple:
		return "(" + showAll(v) + ")"
	case *pyDict:
		var parts []string
		for _, k := range v.keys {
			x := v.values[k]
			parts = append(parts, show(k)+": "+show(x))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	default:
		return fmt.Sprintf("%#v", v)
	}
}

func showAll(items []any) string {
	var parts []string
	for _, x := range items {
		parts = append(parts, show(x))
	}
	return strings.Join(parts, ", ")
}

func TestValuesOfEveryProtocol(t *testing.T) {
	tuples := `((), ("x"), (1, 2), (1, 2, 3), (1, 2, 3, 4))`
	want := `{"numbers": [1, -2, 300, 70000, -70000, 1099511627776, -1099511627776, 4611686018427387904, 1.5, <nil>, true, false], ` +
		`"tuples": ` + tuples + `, "text é": "ünï", "again": ` + tuples + `}`
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
		if got := strings.ReplaceAll(show(v), "int64", ""); got != want {
			t.Errorf("protocol %d:\n got %s\nwant %s", protocol, got, want)
		}
		for cut := range data { // no prefix is a pickle
			if _, err := load(data[:cut]); err == nil {
				t.Errorf("protocol %d: the first %d of %d bytes load", protocol, cut, len(data))
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	const proto = "\x80\x02"
	ordered := "ccollections\nOrderedDict\n"
	for name, c := range map[string]struct{ data, want string }{
		"os.system": {proto + "cos\nsystem\n(X\x02\x00\x00\x00idtR.",
			`instruction 0x63 at byte 2: refers to "os.system"`},
		"builtins.eval": {proto + "cbuiltins\neval\n.", `"builtins.eval"`},
		"near miss": {proto + "ccollections.OrderedDict\n__init__\n.",
			`"collections.OrderedDict.__init__"`},
		"STACK_GLOBAL": {"\x80\x04\x8c\x02os\x8c\x06system\x93.",
			`instruction 0x93 at byte 14: refers to "os.system"`},
		"STACK_GLOBAL by dots": {"\x80\x04\x8c\x0bcollections\x8c\x14OrderedDict.__init__\x93.",
			`"collections.OrderedDict.__init__"`},
		"STACK_GLOBAL of a number": {"\x80\x04\x8c\x02osK\x01\x93.", "is a int64, expected a string"},
		"INST":                     {proto + "(S'id'\nios\nsystem\n.", "0x53 at byte 3: it has no place"},
		"INST at once":             {proto + "(ios\nsystem\n.", "0x69 at byte 3: it has no place"},
		"OBJ":                      {proto + "(" + ordered + "o.", "0x6f at byte"},
		"NEWOBJ":                   {proto + ordered + ")\x81.", "0x81 at byte"},
		"NEWOBJ_EX":                {"\x80\x04" + ordered + ")}\x92.", "0x92 at byte"},
		"EXT1":                     {proto + "\x82\x01.", "0x82 at byte 2: it has no place"},
		"BUILD on a value":         {proto + "K\x01}b.", "0x62 at byte 5: argument 0 of a call is a int64"},
		"REDUCE of a value":        {proto + "ctorch\nFloatStorage\n)R.", "0x52 at byte 23: argument 0 of a call is a int, expected a pyFunc"},
		"REDUCE of a string":       {proto + "X\x02\x00\x00\x00id)R.", "is a string, expected a pyFunc"},
		"REDUCE without tuple":     {proto + ordered + "]R.", "expected a pyTuple"},
		"PERSID":                   {proto + "Px\n.", "0x50 at byte 2: it has no place"},
		"BINPERSID":                {proto + "K\x01Q.", "no storage here"},
		"protocol 0":               {"(dp0\n.", "not a pickle of protocol 2 to 5"},
		"protocol 1":               {"}q\x00.", "not a pickle of protocol 2 to 5"},
		"protocol 6":               {"\x80\x06N.", "not a pickle of protocol 2 to 5"},
		"empty":                    {"", "not a pickle"},
		"no STOP":                  {proto + "N", "truncated"},
		"underflow":                {proto + "\x85.", "the stack is empty"},
		"no mark":                  {proto + "t.", "no mark"},
		"memo not set":             {proto + "h\x05.", "memo entry 5"},
		"memo of nothing":          {proto + "q\x05.", "the stack is empty"},
		"text of 4 GB":             {proto + "X\xff\xff\xff\xffab.", "truncated"},
		"text of 2^64":             {"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xffab.", "truncated"},
		"integer of 255 bytes":     {proto + "\x8a\xff" + strings.Repeat("\x00", 255) + ".", "at most 8"},
		"odd items":                {proto + "}(Nu.", "expected pairs"},
		"append to a dict":         {proto + "}Na.", "expected a list"},
		"global without end":       {proto + "c" + strings.Repeat("a", 1000), "no newline"},
		"bytearray":                {"\x80\x05\x96\x00\x00\x00\x00\x00\x00\x00\x00.", "0x96 at byte 2: it has no place"},
		"unknown":                  {proto + "\xff.", "0xff at byte 2"},
	} {
		v, err := load([]byte(c.data))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: value %v, error %v; want one with %q", name, v, err, c.want)
		}
	}
}

// A value nested a million deep, and a dict that holds itself, must neither overflow the stack nor loop.
func TestDeepAndCyclicValues(t *testing.T) {
	if _, err := load([]byte("\x80\x02)" + strings.Repeat("\x85", 1_000_000) + ".")); err != nil {
		t.Error(err)
	}
	v, err := load([]byte("\x80\x02}q\x00X\x01\x00\x00\x00ah\x00s."))
	if err != nil {
		t.Fatal(err)
	}
	if inner := v.(*pyDict).values["a"]; inner != v {
		t.Error("the dict does not hold itself")
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
		if _, err := load(data); err != nil && !strings.Contains(err.Error(), "pickle") {
			t.Fatalf("error without a place: %v", err)
		}
	})
}
