package bpe

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// form is a Unicode normal form computed from x/text's character data. x/text's own normalizer cannot be used where a
// string needs work: it inserts U+034F after 30 combining marks, and it is of a later Unicode version.
type form struct {
	name      string
	decompose norm.Form // NFD or NFKD: which decompositions apply
	done      norm.Form // strings that are wholly in this form need no work
	compose   bool
}

var forms = map[string]form{
	"NFC":  {"NFC", norm.NFD, norm.NFC, true},
	"NFD":  {"NFD", norm.NFD, norm.NFD, false},
	"NFKC": {"NFKC", norm.NFKD, norm.NFKC, true},
	"NFKD": {"NFKD", norm.NFKD, norm.NFKD, false},
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
		return nil, fmt.Errorf("normalizer %q is not supported: expected null, NFC, NFD, NFKC, NFKD or a Sequence of these (byte-level BPE)", n.Type)
	}
	return []form{f}, nil
}

// apply returns valid UTF-8 s in the normal form.
func (f form) apply(s string) string {
	if f.done.QuickSpanString(s) == len(s) {
		return s
	}
	runes := make([]rune, 0, len(s))
	classes := make([]uint8, 0, len(s))
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		p := f.decompose.PropertiesString(s[i : i+n])
		if unicode.Is(inert, r) {
			p = norm.Properties{}
		}
		if d := p.Decomposition(); d != nil {
			for j := 0; j < len(d); {
				r, m := utf8.DecodeRune(d[j:])
				runes = append(runes, r)
				classes = append(classes, f.decompose.Properties(d[j:j+m]).CCC())
				j += m
			}
		} else if r >= hangulBase && r < hangulBase+hangulCount {
			runes = appendHangul(runes, r)
			for len(classes) < len(runes) {
				classes = append(classes, 0)
			}
		} else {
			runes = append(runes, r)
			classes = append(classes, p.CCC())
		}
		i += n
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

const (
	hangulBase, hangulCount      = 0xac00, 11172
	leadBase, vowelBase          = 0x1100, 0x1161
	tailBase                     = 0x11a7
	leads, vowels, tails         = 19, 21, 28
	maxRune                 rune = unicode.MaxRune
)

func appendHangul(runes []rune, r rune) []rune {
	s := r - hangulBase
	runes = append(runes, leadBase+s/(vowels*tails), vowelBase+s%(vowels*tails)/tails)
	if t := s % tails; t != 0 {
		runes = append(runes, tailBase+t)
	}
	return runes
}

// pair returns the primary composite of two characters.
func pair(a, b rune) (rune, bool) {
	if a >= leadBase && a < leadBase+leads && b >= vowelBase && b < vowelBase+vowels {
		return hangulBase + ((a-leadBase)*vowels+b-vowelBase)*tails, true
	}
	if a >= hangulBase && a < hangulBase+hangulCount && (a-hangulBase)%tails == 0 && b > tailBase && b < tailBase+tails {
		return a + b - tailBase, true
	}
	r, ok := composites()[[2]rune{a, b}]
	return r, ok
}

// composites inverts the canonical decompositions: x/text gives them in full, so the first half is composed again.
var composites = sync.OnceValue(func() map[[2]rune]rune {
	table := map[[2]rune]rune{}
	var buf [utf8.UTFMax]byte
	for r := rune(0xa0); r <= maxRune; r++ {
		if r == hangulBase {
			r += hangulCount
		}
		enc := buf[:utf8.EncodeRune(buf[:], r)]
		d := norm.NFD.Properties(enc).Decomposition()
		if d == nil || unicode.Is(inert, r) || !norm.NFC.IsNormal(enc) {
			continue
		}
		_, n := utf8.DecodeLastRune(d)
		first := []rune(norm.NFC.String(string(d[:len(d)-n])))
		if len(first) == 1 {
			second, _ := utf8.DecodeLastRune(d)
			table[[2]rune{first[0], second}] = r
		}
	}
	return table
})
