package bpe

import (
	"encoding/json"
	"fmt"
	"slices"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// form is a Unicode normal form as the crate unicode-normalization-alignments computes it. x/text gives decompositions,
// combining classes and compositions of single characters and pairs; whole strings it would change otherwise: it
// inserts U+034F after 30 combining marks, and it knows the characters of later Unicode versions (inert).
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

// parseNormalizer reads the "normalizer" of a tokenizer.json: null, a normal form, or a Sequence of them.
func parseNormalizer(raw json.RawMessage) ([]form, error) {
	if isNull(raw) {
		return nil, nil
	}
	var n struct {
		Type        string
		Normalizers []json.RawMessage
	}
	if err := json.Unmarshal(raw, &n); err != nil {
		return nil, fmt.Errorf("normalizer: %w", err)
	}
	if n.Type == "Sequence" {
		var all []form
		for _, child := range n.Normalizers {
			fs, err := parseNormalizer(child)
			if err != nil {
				return nil, err
			}
			all = append(all, fs...)
		}
		return all, nil
	}
	f, ok := forms[n.Type]
	if !ok {
		return nil, fmt.Errorf("normalizer %q is not supported: expected null, NFC, NFD, NFKC, NFKD or a Sequence "+
			"of these (byte-level BPE)", n.Type)
	}
	return []form{f}, nil
}

// apply returns valid UTF-8 s in the normal form.
func (f form) apply(s string) string {
	if f.done.QuickSpanString(s) == len(s) {
		return s
	}
	runes := make([]rune, 0, len(s))
	for _, r := range s {
		if unicode.Is(inert, r) {
			runes = append(runes, r)
		} else {
			runes = append(runes, []rune(f.decompose.String(string(r)))...)
		}
	}
	classes := make([]uint8, len(runes))
	for i, r := range runes {
		if !unicode.Is(inert, r) {
			classes[i] = f.decompose.PropertiesString(string(r)).CCC()
		}
	}
	order(runes, classes)
	if f.compose {
		runes = compose(runes, classes)
	}
	return string(runes)
}

// order sorts each run of combining marks by combining class, stably (canonical ordering).
func order(runes []rune, classes []uint8) {
	type mark struct {
		r rune
		c uint8
	}
	var run []mark
	for i := 0; i < len(runes); i++ {
		if classes[i] == 0 {
			continue
		}
		run = run[:0]
		for j := i; j < len(runes) && classes[j] != 0; j++ {
			run = append(run, mark{runes[j], classes[j]})
		}
		slices.SortStableFunc(run, func(a, b mark) int { return int(a.c) - int(b.c) })
		for j, m := range run {
			runes[i+j], classes[i+j] = m.r, m.c
		}
		i += len(run)
	}
}

// compose joins starters with the marks that follow them, in place (canonical composition).
func compose(runes []rune, classes []uint8) []rune {
	out, starter, last := 0, -1, -1
	for i, r := range runes {
		c := int(classes[i])
		if starter >= 0 && (last < c || last == -1) {
			if joined, ok := pair(runes[starter], r); ok {
				runes[starter] = joined
				continue
			}
		}
		if c == 0 {
			starter, last = out, -1
		} else {
			last = c
		}
		runes[out] = r
		out++
	}
	return runes[:out]
}

// pair returns the primary composite of two characters.
func pair(a, b rune) (rune, bool) {
	if b < 0x300 || norm.NFC.PropertiesString(string(b)).BoundaryBefore() { // composes with nothing before it
		return 0, false
	}
	joined := norm.NFC.String(string([]rune{a, b}))
	r, n := utf8.DecodeRuneInString(joined)
	return r, n == len(joined) && !unicode.Is(inert, r)
}
