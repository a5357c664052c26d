package bpe

import (
	"strings"
	"unicode/utf8"
)

// A byte-level vocabulary spells each byte as one printable character (GPT-2, Radford et al. 2019): printable Latin-1
// characters stand for themselves, the other 68 bytes for U+0100 and up, in order.
var (
	byteToRune [256]rune
	runeToByte = map[rune]byte{}
)

func init() {
	next := rune(0x100)
	for b := range 256 {
		r := rune(b)
		printable := '!' <= r && r <= '~' || 0xa1 <= r && r <= 0xac || 0xae <= r && r <= 0xff
		if !printable {
			r = next
			next++
		}
		byteToRune[b] = r
		runeToByte[r] = byte(b)
	}
}

// unspell returns the bytes that a token of such a vocabulary spells; ok is false when token has a character that
// stands for no byte.
func unspell(token string) (raw string, ok bool) {
	out := make([]byte, 0, len(token))
	for _, r := range token {
		b, known := runeToByte[r]
		if !known {
			return "", false
		}
		out = append(out, b)
	}
	return string(out), true
}

// ToValidUTF8 replaces each maximal ill-formed part of s by U+FFFD, as the Unicode Standard (3.9, "U+FFFD substitution
// of maximal subparts") and Rust's String::from_utf8_lossy do. (strings.ToValidUTF8 replaces whole runs.)
func ToValidUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			b.WriteRune(utf8.RuneError)
			i += illFormed(s[i:])
			continue
		}
		b.WriteString(s[i : i+n])
		i += n
	}
	return b.String()
}

// illFormed returns the length of the maximal subpart of an ill-formed sequence at the start of s.
func illFormed(s string) int {
	low, high, length := byte(0x80), byte(0xbf), 0
	switch c := s[0]; {
	case 0xc2 <= c && c <= 0xdf:
		length = 2
	case 0xe0 <= c && c <= 0xef:
		length = 3
		if c == 0xe0 {
			low = 0xa0
		} else if c == 0xed {
			high = 0x9f
		}
	case 0xf0 <= c && c <= 0xf4:
		length = 4
		if c == 0xf0 {
			low = 0x90
		} else if c == 0xf4 {
			high = 0x8f
		}
	default:
		return 1
	}
	n := 1
	for n < length && n < len(s) && low <= s[n] && s[n] <= high {
		low, high = 0x80, 0xbf
		n++
	}
	return n
}
