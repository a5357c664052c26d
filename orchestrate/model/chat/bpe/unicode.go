package bpe

import "unicode"

// The classes of \p{L}, \p{N} and \s follow the Unicode versions of the libraries behind Hugging Face's tokenizers
// 0.23, which are not Go's (15.0). The tables below hold what differs; TestUnicodeTables says when Go catches up.

// letters16 are the letters that Unicode 15.1 and 16.0 added (Oniguruma's \p{L} is of 16.0).
var letters16 = &unicode.RangeTable{
	R16: []unicode.Range16{{0x1c89, 0x1c8a, 1}, {0xa7cb, 0xa7cd, 1}, {0xa7da, 0xa7dc, 1}},
	R32: []unicode.Range32{
		{0x105c0, 0x105f3, 1}, {0x10d4a, 0x10d65, 1}, {0x10d6f, 0x10d85, 1}, {0x10ec2, 0x10ec4, 1},
		{0x11380, 0x11389, 1}, {0x1138b, 0x1138b, 1}, {0x1138e, 0x1138e, 1}, {0x11390, 0x113b5, 1},
		{0x113b7, 0x113b7, 1}, {0x113d1, 0x113d1, 1}, {0x113d3, 0x113d3, 1}, {0x11bc0, 0x11be0, 1},
		{0x13460, 0x143fa, 1}, {0x16100, 0x1611d, 1}, {0x16d40, 0x16d6c, 1}, {0x18cff, 0x18cff, 1},
		{0x1e5d0, 0x1e5ed, 1}, {0x1e5f0, 0x1e5f0, 1}, {0x2ebf0, 0x2ee5d, 1},
	},
}

// numbers16 are the numbers that Unicode 16.0 added.
var numbers16 = &unicode.RangeTable{R32: []unicode.Range32{
	{0x10d40, 0x10d49, 1}, {0x116d0, 0x116e3, 1}, {0x11bf0, 0x11bf9, 1}, {0x16130, 0x16139, 1},
	{0x16d70, 0x16d79, 1}, {0x1ccf0, 0x1ccf9, 1}, {0x1e5f1, 0x1e5fa, 1},
}}

// numbers17 are the numbers that Unicode 17.0 added: the Digits pre-tokenizer uses Rust's char::is_numeric.
var numbers17 = &unicode.RangeTable{R32: []unicode.Range32{{0x11de0, 0x11de9, 1}, {0x16ff4, 0x16ff6, 1}}}

type class uint8

const (
	other class = iota
	letter
	number
	space
)

var asciiClass = func() (t [128]class) {
	for r := range rune(128) {
		t[r] = classifyWide(r)
	}
	return t
}()

func classify(r rune) class {
	if r < 128 {
		return asciiClass[r]
	}
	return classifyWide(r)
}

func classifyWide(r rune) class {
	switch {
	case unicode.IsLetter(r) || unicode.Is(letters16, r):
		return letter
	case unicode.IsNumber(r) || unicode.Is(numbers16, r):
		return number
	case unicode.IsSpace(r):
		return space
	}
	return other
}

// isDigit is Rust's char::is_numeric.
func isDigit(r rune) bool { return classify(r) == number || r >= 128 && unicode.Is(numbers17, r) }

// isWord is the class \w of Rust's regex crate.
func isWord(r rune) bool {
	return classify(r) == letter ||
		unicode.In(r, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control)
}
