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
		`"tuples": ` + tuples + `, "text é": "ünï", 5: {"k": []}, "again": ` + tuples + `}`
	for protocol := 2; protocol <= 5; protocol++ {
		data, err := os.ReadFile(fmt.Sprintf("testdata/pickle/protocol%d.pkl", protocol))
		if err != nil {
			t.Fatal(err)
		}
		v, err := loadPickle(data, testHost)
		if err != nil {
			t.Errorf("protocol %d: %v", protocol, err)
			continue
		}
		if got := strings.ReplaceAll(show(v), "int64", ""); got != want {
			t.Errorf("protocol %d:\n got %s\nwant %s", protocol, got, want)
		}
		for cut := range data { // no prefix is a pickle
			if _, err := loadPickle(data[:cut], testHost); err == nil {
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
			`GLOBAL at byte 2: refused: refers to "os.system"`},
		"builtins.eval": {proto + "cbuiltins\neval\n.", `"builtins.eval"`},
		"near miss": {proto + "ccollections.OrderedDict\n__init__\n.",
			`"collections.OrderedDict.__init__"`},
		"STACK_GLOBAL": {"\x80\x04\x8c\x02os\x8c\x06system\x93.",
			`STACK_GLOBAL at byte 14: refused: refers to "os.system"`},
		"STACK_GLOBAL by dots": {"\x80\x04\x8c\x0bcollections\x8c\x14OrderedDict.__init__\x93.",
			`"collections.OrderedDict.__init__"`},
		"STACK_GLOBAL of a number": {"\x80\x04\x8c\x02osK\x01\x93.", "expected two strings"},
		"INST":                     {proto + "(S'id'\nios\nsystem\n.", "STRING at byte 3: refused"},
		"INST at once":             {proto + "(ios\nsystem\n.", "INST at byte 3: refused"},
		"OBJ":                      {proto + "(" + ordered + "o.", "OBJ at byte"},
		"NEWOBJ":                   {proto + ordered + ")\x81.", "NEWOBJ at byte"},
		"NEWOBJ_EX":                {"\x80\x04" + ordered + ")}\x92.", "NEWOBJ_EX at byte"},
		"EXT1":                     {proto + "\x82\x01.", "EXT1 at byte 2: refused"},
		"BUILD on a value":         {proto + "K\x01}b.", "BUILD at byte 5: refused: sets the state of a int"},
		"BUILD with __setstate__":  {proto + ordered + ")RX\x01\x00\x00\x00xb.", "sets the state of a dict from a str"},
		"REDUCE of a value":        {proto + "ctorch\nFloatStorage\n)R.", "REDUCE at byte 23: refused: calls a int"},
		"REDUCE of a string":       {proto + "X\x02\x00\x00\x00id)R.", "refused: calls a str"},
		"REDUCE without tuple":     {proto + ordered + "]R.", "expected a tuple"},
		"PERSID":                   {proto + "Px\n.", "PERSID at byte 2: refused"},
		"BINPERSID":                {proto + "K\x01Q.", "no storage here"},
		"protocol 0":               {"(dp0\n.", "not a pickle of protocol 2 to 5"},
		"protocol 1":               {"}q\x00.", "not a pickle of protocol 2 to 5"},
		"protocol 6":               {"\x80\x06N.", "protocol 6"},
		"second PROTO":             {proto + "\x80\x02N.", "at byte 2, expected 2 to 5 at the beginning"},
		"empty":                    {"", "truncated"},
		"no STOP":                  {proto + "N", "no STOP"},
		"two values":               {proto + "NN.", "2 values"},
		"open mark":                {proto + "N(.", "1 marks"},
		"underflow":                {proto + "\x85.", "the stack is empty"},
		"through a mark":           {proto + "N(\x85.", "the stack is empty"},
		"no mark":                  {proto + "t.", "no mark"},
		"memo not set":             {proto + "h\x05.", "memo entry 5"},
		"memo of nothing":          {proto + "q\x05.", "the stack is empty"},
		"text of 4 GB":             {proto + "X\xff\xff\xff\xffab.", "truncated"},
		"text of 2^64":             {"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xffab.", "truncated"},
		"integer of 255 bytes":     {proto + "\x8a\xff" + strings.Repeat("\x00", 255) + ".", "at most 8"},
		"not UTF-8":                {proto + "X\x01\x00\x00\x00\xff.", "UTF-8"},
		"frame too long":           {"\x80\x04\x95\xff\x00\x00\x00\x00\x00\x00\x00N.", "truncated"},
		"odd items":                {proto + "}(Nu.", "not pairs"},
		"dict as key":              {proto + "}}Ns.", "key of type dict"},
		"append to a dict":         {proto + "}Na.", "expected a list"},
		"global without end":       {proto + "c" + strings.Repeat("a", 1000), "no newline"},
		"deep marks":               {proto + strings.Repeat("(", 1_000_000) + ".", "nested deeper than 1000"},
		"endless":                  {proto + strings.Repeat("N", 2_000_000) + ".", "instructions"},
		"bytearray":                {"\x80\x05\x96\x00\x00\x00\x00\x00\x00\x00\x00.", "BYTEARRAY8 at byte 2: refused"},
		"unknown":                  {proto + "\xff.", "opcode 0xff at byte 2"},
	} {
		v, err := loadPickle([]byte(c.data), testHost)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), " at byte ") {
			t.Errorf("%s: value %v, error %v; want one with %q", name, v, err, c.want)
		}
	}
	if _, err := loadPickle(make([]byte, maxPickle+1), testHost); err == nil {
		t.Error("an oversized input is read")
	}
}

// A value nested a million deep, and a dict that holds itself, must neither overflow the stack nor loop.
func TestDeepAndCyclicValues(t *testing.T) {
	if _, err := loadPickle([]byte("\x80\x02)"+strings.Repeat("\x85", 1_000_000)+"."), testHost); err != nil {
		t.Error(err)
	}
	v, err := loadPickle([]byte("\x80\x02}q\x00X\x01\x00\x00\x00ah\x00s."), testHost)
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
		if _, err := loadPickle(data, testHost); err != nil && !strings.Contains(err.Error(), " at byte ") {
			t.Fatalf("error without a place: %v", err)
		}
	})
}
