package bpe

import (
	"errors"
	"fmt"
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

// normalizer changes a text before it is cut into words; begins and ends say whether s is at the ends of its text.
type normalizer func(s string, begins, ends bool) string

func normalize(steps []normalizer, s string, begins, ends bool) string {
	for _, step := range steps {
		s = step(s, begins, ends)
	}
	return s
}

// parseNormalizer takes normal forms, Replace, Prepend, Lowercase and Strip.
func parseNormalizer(c *component) (all []normalizer, err error) {
	for _, step := range c.steps() {
		n, err := step.normalizer()
		if err = errors.Join(err, step.stray); err != nil {
			return nil, fmt.Errorf("normalizer %w", err)
		}
		all = append(all, n)
	}
	return all, nil
}

func (c component) normalizer() (normalizer, error) {
	if f, ok := forms[c.Type]; ok {
		return func(s string, _, _ bool) string { return f.apply(s) }, nil
	}
	switch c.Type {
	case "Replace":
		replace, err := c.replacer()
		return func(s string, _, _ bool) string { return replace(s) }, err
	case "Prepend":
		return func(s string, begins, _ bool) string {
			if begins && s != "" {
				return c.Prepend + s
			}
			return s
		}, nil
	case "Lowercase":
		return func(s string, _, _ bool) string { // U+0130 alone becomes two characters
			return strings.Map(unicode.ToLower, strings.ReplaceAll(s, "\u0130", "i\u0307"))
		}, nil
	case "Strip":
		return func(s string, begins, ends bool) string {
			if begins && c.StripLeft {
				s = strings.TrimLeftFunc(s, unicode.IsSpace)
			}
			if ends && c.StripRight {
				s = strings.TrimRightFunc(s, unicode.IsSpace)
			}
			return s
		}, nil
	}
	return nil, fmt.Errorf("%q is not supported: expected null, NFC, NFD, NFKC, NFKD, Replace, Prepend, Lowercase, "+
		"Strip or a Sequence of these", c.Type)
}

// replacer replaces what the pattern of a Replace matches by its content.
func (c component) replacer() (func(string) string, error) {
	if c.Pattern.String != nil {
		return func(s string) string { return strings.ReplaceAll(s, *c.Pattern.String, c.Content) }, nil
	}
	p, err := c.pattern()
	return func(s string) string {
		var b strings.Builder
		done := 0
		for _, m := range p.matches(s) {
			b.WriteString(s[done:m[0]] + c.Content)
			done = m[1]
		}
		return b.String() + s[done:]
	}, err
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
