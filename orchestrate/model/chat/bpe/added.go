package bpe

import (
	"cmp"
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

// spelled is an added token as it is searched for.
type spelled struct {
	text string
	AddedToken
}

// matcher finds added tokens in a text: leftmost, then longest. It holds them by their first byte, longest first.
type matcher [256][]spelled

func (m *matcher) add(t AddedToken, text string) {
	list := &m[text[0]]
	*list = append(*list, spelled{text, t})
	slices.SortStableFunc(*list, func(a, b spelled) int { return cmp.Compare(len(b.text), len(a.text)) })
}

// split cuts s at the tokens found: text is called for what lies between them, token for each one.
func (m *matcher) split(s string, text func(string), token func(AddedToken)) {
	done := 0
	for i := 0; i < len(s); {
		k := slices.IndexFunc(m[s[i]], func(t spelled) bool { return strings.HasPrefix(s[i:], t.text) })
		if k < 0 {
			i++
			continue
		}
		t := m[s[i]][k]
		start, end := i, i+len(t.text)
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
			text(s[done:start])
		}
		token(t.AddedToken)
		done = end
	}
	if done < len(s) {
		text(s[done:])
	}
}

// recogniser holds the added tokens that one kind of text is searched for: first those spelled as they are, then, in
// the normalized rest, the others.
type recogniser struct {
	plain, normalized matcher
	forms             []form
}

func newRecogniser(tokens []AddedToken, forms []form) *recogniser {
	r := &recogniser{forms: forms}
	for _, t := range tokens {
		if t.Normalized {
			r.normalized.add(t, normalize(forms, t.Content))
		} else {
			r.plain.add(t, t.Content)
		}
	}
	return r
}

// split cuts s at the tokens found and normalizes what lies between them.
func (r *recogniser) split(s string, text func(string), token func(AddedToken)) {
	r.plain.split(s, func(rest string) { r.normalized.split(normalize(r.forms, rest), text, token) }, token)
}
