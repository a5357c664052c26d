package bpe

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// AddedToken is a token that is recognised in the text before the model sees it.
type AddedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"` // only between non-word characters
	LStrip     bool   `json:"lstrip"`      // takes the white space before it along
	RStrip     bool   `json:"rstrip"`      // takes the white space after it along
	Normalized bool   `json:"normalized"`  // searched in the normalized text
	Special    bool   `json:"special"`     // left out by Decode with skipSpecial
}

// blank says that a token is white space only, which cannot forge markup, and is how some vocabularies write
// indentation.
func (a AddedToken) blank() bool {
	return !a.Special && strings.TrimFunc(a.Content, unicode.IsSpace) == ""
}

// matcher finds added tokens in a text: leftmost, then longest.
type matcher struct {
	tokens  map[string]AddedToken // by how they are spelled in the text
	lengths *[256][]int           // of those with this first byte, longest first
}

func newMatcher() matcher { return matcher{map[string]AddedToken{}, &[256][]int{}} }

func (m matcher) add(t AddedToken, text string) {
	if _, known := m.tokens[text]; known || text == "" {
		return
	}
	m.tokens[text] = t
	list := &m.lengths[text[0]]
	if i, known := slices.BinarySearchFunc(*list, len(text), func(a, b int) int { return b - a }); !known {
		*list = slices.Insert(*list, i, len(text))
	}
}

// at finds the longest token that s has at position i and that may be there.
func (m matcher) at(s string, i int, may func(start, end int, t AddedToken) bool) (t AddedToken, length int) {
	for _, n := range m.lengths[s[i]] {
		if i+n <= len(s) {
			if t, ok := m.tokens[s[i:i+n]]; ok && may(i, i+n, t) {
				return t, n
			}
		}
	}
	return t, 0
}

// split cuts s at the tokens found that may be where they are: text is called for what lies between them, token for
// each one, both with where they start and end (a token's without the white space that it takes along).
func (m matcher) split(s string, may func(start, end int, t AddedToken) bool, text func(start, end int),
	token func(start, end int, t AddedToken)) {
	done := 0
	for i := 0; i < len(s); {
		if len(m.lengths[s[i]]) == 0 {
			i++
			continue
		}
		t, n := m.at(s, i, may)
		if n == 0 {
			i++
			continue
		}
		start, end := i, i+n
		i = end
		before, _ := utf8.DecodeLastRuneInString(s[:start]) // at an end of the text U+FFFD, which is in no word
		after, _ := utf8.DecodeRuneInString(s[end:])
		if t.SingleWord && (isWord(before) || isWord(after)) {
			continue
		}
		if t.LStrip {
			start = max(len(strings.TrimRightFunc(s[:start], unicode.IsSpace)), done)
		}
		if t.RStrip {
			end += len(s[end:]) - len(strings.TrimLeftFunc(s[end:], unicode.IsSpace))
		}
		if done < start {
			text(done, start)
		}
		token(i-n, i, t)
		done = end
	}
	if done < len(s) {
		text(done, len(s))
	}
}
