package bpe

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// stage is one pre-tokenizer: it splits each piece that the stage before it made.
type stage struct {
	scan      splitter // cuts at every piece; nil: see split
	split     *split   // nil: pieces stay whole
	prefix    string   // put before a piece that does not start with it
	firstOnly bool     // …at the start of the text only
	spaces    string   // what spaces become
}

// split cuts a text at the matches of a pattern.
type split struct {
	pattern  pattern
	behavior string
	invert   bool // matches and what lies between them change places
}

// parsePreTokenizer takes the pre-tokenizers below; byteLevel says that the last one is ByteLevel.
func parsePreTokenizer(c *component) (stages []stage, byteLevel bool, err error) {
	for _, step := range c.steps() {
		if byteLevel {
			return nil, false, errors.New("pre_tokenizer Sequence goes on after ByteLevel, which is not supported")
		}
		s, err := step.stage()
		if err = errors.Join(err, step.stray); err != nil {
			return nil, false, fmt.Errorf("pre_tokenizer %w", err)
		}
		if byteLevel = step.Type == "ByteLevel"; s != (stage{}) {
			stages = append(stages, s)
		}
	}
	return stages, byteLevel, nil
}

func (c component) stage() (s stage, err error) {
	switch c.Type {
	case "ByteLevel":
		if c.AddPrefixSpace == nil || *c.AddPrefixSpace {
			s.prefix = " "
		}
		if c.UseRegex == nil || *c.UseRegex {
			s.scan = gpt2
		}
		return s, nil
	case "Digits":
		return stage{scan: digits{c.IndividualDigits}}, nil
	case "Metaspace":
		return c.metaspaceStage()
	case "Whitespace", "WhitespaceSplit", "Punctuation", "CharDelimiterSplit":
		s.split = &split{pattern: runes(unicode.IsSpace), behavior: "Removed"}
		switch c.Type {
		case "Whitespace":
			s.split = &split{pattern: runs(wordsOrSymbols), behavior: "Removed", invert: true}
		case "CharDelimiterSplit":
			s.split.pattern = literal(c.Delimiter)
		case "Punctuation":
			s.split.pattern, s.split.behavior = runes(isPunctuation), c.Behavior
			if c.Behavior == "" {
				s.split.behavior = "Isolated"
			}
		}
	case "Split":
		if c.Pattern.Regex != nil && (c.Behavior == "Isolated" && !c.Invert || c.Behavior == "Removed" && c.Invert) {
			if scan, ok := splitters[*c.Pattern.Regex]; ok {
				return stage{scan: scan}, nil
			}
		}
		p, err := c.pattern()
		if err != nil {
			return s, err
		}
		s.split = &split{p, c.Behavior, c.Invert}
	default:
		return s, fmt.Errorf("%q is not supported: expected ByteLevel, Split, Metaspace, Digits, Punctuation, "+
			"Whitespace, WhitespaceSplit, CharDelimiterSplit or a Sequence of these", c.Type)
	}
	if !slices.Contains([]string{"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"},
		s.split.behavior) {
		return s, fmt.Errorf("%s with behavior %q is not supported: expected Removed, Isolated, MergedWithPrevious, "+
			"MergedWithNext or Contiguous", c.Type, c.Behavior)
	}
	return s, nil
}

func (c component) metaspaceStage() (s stage, err error) {
	scheme := "always"
	if c.PrependScheme != nil {
		scheme = *c.PrependScheme
	} else if c.AddPrefixSpace != nil && !*c.AddPrefixSpace {
		scheme = "never"
	}
	if utf8.RuneCountInString(c.Replacement) != 1 {
		return s, fmt.Errorf("replacement %q of Metaspace: expected one character", c.Replacement)
	}
	s.spaces = c.Replacement
	switch scheme {
	case "always", "first":
		s.prefix, s.firstOnly = c.Replacement, scheme == "first"
	case "never":
	default:
		return s, fmt.Errorf("prepend_scheme %q of Metaspace is not supported: expected always, first or never", scheme)
	}
	if c.Split == nil || *c.Split {
		s.split = &split{pattern: literal(c.Replacement), behavior: "MergedWithNext"}
	}
	return s, nil
}

// place is where a piece of a text starts, behind what stages have put before it.
type place struct {
	at     int
	put    int    // bytes at the start of the piece that are not the text's
	cut    bool   // the piece goes on with what comes before it: nothing is put there
	spaces string // what stands for each space
}

// after is the place behind s, the start of the piece.
func (p place) after(s string) place {
	n := len(s)
	if p.spaces != "" {
		n -= strings.Count(s, p.spaces) * (len(p.spaces) - 1)
	}
	return place{p.at + max(0, n-p.put), max(0, p.put-n), p.cut && n == 0, p.spaces}
}

// words calls emit for each word of s after stages.
func words(stages []stage, s string, p place, emit func(word string, p place)) {
	if s == "" {
		return
	}
	if len(stages) == 0 {
		emit(s, p)
		return
	}
	first := &stages[0]
	if first.spaces != "" {
		s, p.spaces = strings.ReplaceAll(s, " ", first.spaces), first.spaces
	}
	if first.prefix != "" && !strings.HasPrefix(s, first.prefix) && !p.cut && (p.at == 0 || !first.firstOnly) {
		s, p.put = first.prefix+s, p.put+1
	}
	if first.split != nil {
		for _, piece := range first.split.pieces(s) {
			words(stages[1:], s[piece[0]:piece[1]], p.after(s[:piece[0]]), emit)
		}
		return
	}
	for first.scan != nil && s != "" {
		n := first.scan.next(s)
		words(stages[1:], s[:n], p, emit)
		s, p = s[n:], p.after(s[:n])
	}
	words(stages[1:], s, p, emit)
}

// pieces cuts s.
func (p *split) pieces(s string) (out [][2]int) {
	type part struct {
		start, end int
		match      bool
	}
	var parts []part
	done := 0
	for _, m := range p.pattern.matches(s) {
		if done < m[0] {
			parts = append(parts, part{done, m[0], p.invert})
		}
		if m[0] < m[1] {
			parts = append(parts, part{m[0], m[1], !p.invert})
		}
		done = m[1]
	}
	if done < len(s) {
		parts = append(parts, part{done, len(s), p.invert})
	}
	if p.behavior == "MergedWithNext" {
		slices.Reverse(parts)
	}
	before := false // the part before is a match
	for _, q := range parts {
		n := len(out)
		joins := n > 0 && (p.behavior == "Contiguous" && q.match == before ||
			strings.HasPrefix(p.behavior, "MergedWith") && q.match && !before)
		switch {
		case joins:
			out[n-1] = [2]int{min(out[n-1][0], q.start), max(out[n-1][1], q.end)}
		case p.behavior != "Removed" || !q.match:
			out = append(out, [2]int{q.start, q.end})
		}
		before = q.match
	}
	if p.behavior == "MergedWithNext" {
		slices.Reverse(out)
	}
	return out
}

// isPunctuation is what the pre-tokenizer Punctuation splits at.
func isPunctuation(r rune) bool {
	return unicode.IsPunct(r) || r < unicode.MaxASCII && strings.ContainsRune("$+<=>^`|~", r)
}
