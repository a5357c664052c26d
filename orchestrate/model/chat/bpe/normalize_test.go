package bpe

import (
	"strings"
	"testing"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// x/text agrees wherever its Unicode version and its limit on combining marks do not matter.
func TestNormalFormsAgreeWithText(t *testing.T) {
	for name, f := range forms {
		reference := map[string]norm.Form{"NFC": norm.NFC, "NFD": norm.NFD, "NFKC": norm.NFKC, "NFKD": norm.NFKD}[name]
		for r := rune(1); r <= 0x3ffff; r++ {
			if r >= 0x4e00 && r < 0xf900 && r%64 != 0 || r >= 0xd800 && r < 0xe000 || r >= 0x20000 && r < 0x2f800 &&
				r%64 != 0 || !unicode.Is(unicode9(), r) {
				continue
			}
			s := "a" + string(r) + "\u0301" + string(r) + "\u0323"
			if got, want := f.apply(s), reference.String(s); got != want {
				t.Fatalf("%s of %+q: got %+q, want %+q", name, s, got, want)
			}
		}
	}
}

func TestNormalFormOfManyMarks(t *testing.T) {
	got := forms["NFC"].apply("e" + strings.Repeat("\u0301", 100) + strings.Repeat("\u0323", 100))
	want := "\u1eb9" + strings.Repeat("\u0323", 99) + strings.Repeat("\u0301", 100)
	if got != want {
		t.Errorf("got %+q, want %+q", got, want)
	}
}

func TestToValidUTF8(t *testing.T) {
	for in, want := range map[string]string{
		"ok é":                 "ok é",
		"\xff\xfe":             "\ufffd\ufffd",
		"a\xe2\x82b":           "a\ufffdb",                 // a truncated sequence is one replacement
		"\xf0\x9f\x98":         "\ufffd",                   // so is this
		"\xed\xa0\x80":         "\ufffd\ufffd\ufffd",       // a surrogate is three
		"\xe0\x80\x80":         "\ufffd\ufffd\ufffd",       // so is an overlong form
		"\xf4\x90\x80\x80":     "\ufffd\ufffd\ufffd\ufffd", // beyond U+10FFFF
		"\xc3\xc3\xa9":         "\ufffdé",
		"\xf0\x9f\x98\x80\x80": "😀\ufffd",
		"\ufffd":               "\ufffd",
	} {
		if got := ToValidUTF8(in); got != want {
			t.Errorf("%+q: got %+q, want %+q", in, got, want)
		}
	}
}
