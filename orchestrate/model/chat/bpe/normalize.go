package bpe

import (
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	utf "golang.org/x/text/encoding/unicode"
	"golang.org/x/text/unicode/norm"
	"golang.org/x/text/unicode/rangetable"
)

// form is a Unicode normal form as the crate unicode-normalization-alignments computes it. x/text gives decompositions,
// combining classes and compositions of single characters and pairs; whole strings it would change otherwise: it
// inserts U+034F after 30 combining marks, and it knows characters later than Unicode 9, which the crate leaves alone.
type form struct {
	decompose norm.Form // NFD or NFKD: which decompositions apply
	done      norm.Form // strings that are wholly in this form need no work
	compose   bool
}

var forms = map[string]form{
	"NFC":  {norm.NFD, norm.NFC, true},
	"NFD":  {norm.NFD, norm.NFD, false},
	"NFKC": {norm.NFKD, norm.NFKC, true},
	"NFKD": {norm.NFKD, norm.NFKD, false},
}

var unicode9 = sync.OnceValue(func() *unicode.RangeTable { return rangetable.Assigned("9.0.0") })

// char is a character with its combining class.
type char struct {
	r     rune
	class uint8
}

// apply returns valid UTF-8 s in the normal form.
func (f form) apply(s string) string {
	if f.done.QuickSpanString(s) == len(s) {
		return s
	}
	chars := make([]char, 0, len(s))
	for _, r := range s {
		if !unicode.Is(unicode9(), r) {
			chars = append(chars, char{r, 0})
			continue
		}
		for _, part := range f.decompose.String(string(r)) {
			chars = append(chars, char{part, norm.NFD.PropertiesString(string(part)).CCC()})
		}
	}
	for i := 0; i < len(chars); i++ { // canonical ordering: each run of combining marks by class
		start := i
		for i < len(chars) && chars[i].class != 0 {
			i++
		}
		slices.SortStableFunc(chars[start:i], func(a, b char) int { return int(a.class) - int(b.class) })
	}
	if f.compose {
		chars = compose(chars)
	}
	var b strings.Builder
	for _, c := range chars {
		b.WriteRune(c.r)
	}
	return b.String()
}

// compose joins starters with the marks that follow them, in place (canonical composition).
func compose(chars []char) []char {
	out := chars[:0]
	starter, last := -1, -1
	for _, c := range chars {
		if starter >= 0 && (last < int(c.class) || last == -1) {
			if joined, ok := pair(out[starter].r, c.r); ok {
				out[starter].r = joined
				continue
			}
		}
		if last = int(c.class); c.class == 0 {
			starter, last = len(out), -1
		}
		out = append(out, c)
	}
	return out
}

// pair returns the primary composite of two characters.
func pair(a, b rune) (rune, bool) {
	if b < 0x300 || norm.NFC.PropertiesString(string(b)).BoundaryBefore() { // composes with nothing before it
		return 0, false
	}
	joined := norm.NFC.String(string([]rune{a, b}))
	r, n := utf8.DecodeRuneInString(joined)
	return r, n == len(joined) && unicode.Is(unicode9(), r)
}

func normalize(forms []form, s string) string {
	for _, f := range forms {
		s = f.apply(s)
	}
	return s
}

// ToValidUTF8 replaces each maximal ill-formed part of s by U+FFFD, as the Unicode Standard (3.9, "U+FFFD substitution
// of maximal subparts") and Rust's String::from_utf8_lossy do. (strings.ToValidUTF8 replaces whole runs.)
func ToValidUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	s, _ = utf.UTF8.NewDecoder().String(s) // replaces instead of failing
	return s
}
