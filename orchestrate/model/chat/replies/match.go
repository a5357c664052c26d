package replies

import (
	"cmp"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"
)

// pattern is a delimiter: a regular expression whose matches can be seen while the text still grows.
type pattern struct {
	program *syntax.Prog
	whole   *regexp.Regexp // takes a match, for its groups
	last    *regexp.Regexp // a match at the end of a text
	find    *regexp.Regexp // any match
}

// literals is a pattern of texts, of which the longest counts.
func literals(texts []string) string {
	sorted := slices.Clone(texts)
	slices.SortStableFunc(sorted, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for i, text := range sorted {
		sorted[i] = regexp.QuoteMeta(text)
	}
	return strings.Join(sorted, "|")
}

func compile(expression string) (*pattern, error) {
	parsed, err := syntax.Parse(expression, syntax.Perl|syntax.DotNL)
	if err != nil {
		return nil, fmt.Errorf("%w (patterns are Go's, which have no look-around)", err)
	}
	p := &pattern{}
	if p.program, err = syntax.Compile(parsed.Simplify()); err != nil {
		return nil, err
	}
	p.whole = regexp.MustCompile(`(?s)\A(?:` + expression + `)\z`)
	p.last, p.find = regexp.MustCompile(`(?s)(?:`+expression+`)\s*\z`), regexp.MustCompile("(?s)"+expression)
	if at := p.find.FindStringIndex("\x00"); at != nil && at[1] == 0 {
		return nil, fmt.Errorf("%q matches where there is nothing", expression)
	}
	return p, nil
}

// groups are the named groups of a match, those that took part.
func (p *pattern) groups(match string) map[string]string {
	found := map[string]string{}
	at := p.whole.FindStringSubmatchIndex(match)
	for i, name := range p.whole.SubexpNames() {
		if name != "" && at != nil && at[2*i] >= 0 {
			found[name] = match[at[2*i]:at[2*i+1]]
		}
	}
	return found
}

// search looks for the first match of a pattern in a text that grows: a simulation of the pattern's program that keeps
// its threads from one piece of the text to the next, as Thompson's and Pike's do. Threads are in the order of
// preference, so that those that began earlier come first.
type search struct {
	*pattern
	threads    []thread
	begin, end int // of the best match so far; end < 0: none

	// What the place at hand leads to, kept for its memory.
	reached []thread
	visited []int // by instruction: the newest place, counted from 1
}

type thread struct{ pc, begin int }

func (p *pattern) search() *search {
	return &search{pattern: p, end: -1, visited: make([]int, len(p.program.Inst))}
}

// pending tells whether more text could make another match than there is, and from where on.
func (s *search) pending() (from int, yes bool) {
	if len(s.threads) == 0 {
		return 0, false
	}
	return s.threads[0].begin, true
}

// step takes the place at in the text, which is between two characters; -1 is none.
func (s *search) step(at int, before, after rune) {
	flags := syntax.EmptyOpContext(before, after)
	s.reached = s.reached[:0]
	for _, t := range s.threads {
		s.reach(t, flags, at)
	}
	if s.end < 0 {
		s.reach(thread{s.program.Start, at}, flags, at)
	}
	s.threads = s.threads[:0]
	for _, t := range s.reached {
		inst := &s.program.Inst[t.pc]
		if inst.Op == syntax.InstMatch {
			s.begin, s.end = t.begin, at
			break // the others are less preferred
		}
		if after >= 0 && inst.MatchRune(after) {
			s.threads = append(s.threads, thread{int(inst.Out), t.begin})
		}
	}
}

// reach follows the instructions that read no character.
func (s *search) reach(t thread, flags syntax.EmptyOp, at int) {
	if s.visited[t.pc] == at+1 {
		return
	}
	s.visited[t.pc] = at + 1
	inst := &s.program.Inst[t.pc]
	switch inst.Op {
	case syntax.InstAlt, syntax.InstAltMatch:
		s.reach(thread{int(inst.Out), t.begin}, flags, at)
		s.reach(thread{int(inst.Arg), t.begin}, flags, at)
	case syntax.InstCapture, syntax.InstNop:
		s.reach(thread{int(inst.Out), t.begin}, flags, at)
	case syntax.InstEmptyWidth:
		if syntax.EmptyOp(inst.Arg)&^flags == 0 {
			s.reach(thread{int(inst.Out), t.begin}, flags, at)
		}
	case syntax.InstFail:
	default:
		s.reached = append(s.reached, t)
	}
}

// around are the characters at a place of a text.
func around(text []byte, at int) (before, after rune) {
	before, after = -1, -1
	if at > 0 {
		before, _ = utf8.DecodeLastRune(text[:at])
	}
	if at < len(text) {
		after, _ = utf8.DecodeRune(text[at:])
	}
	return before, after
}
