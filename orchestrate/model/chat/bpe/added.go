package bpe

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxAddedToken bounds the length of an added token in bytes, and with it the work per byte of text.
const maxAddedToken = 512

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

// matcher finds added tokens in a text: leftmost, then longest.
type matcher struct {
	root   trie
	tokens []AddedToken
	starts [256]bool
}

type trie struct {
	children map[byte]*trie
	token    int // index + 1 into the matcher's tokens
}

// newMatcher searches tokens by the given spellings (their contents, perhaps normalized).
func newMatcher(tokens []AddedToken, spellings []string) *matcher {
	m := &matcher{tokens: tokens}
	for i, s := range spellings {
		if s == "" {
			continue
		}
		m.starts[s[0]] = true
		node := &m.root
		for j := range len(s) {
			child := node.children[s[j]]
			if child == nil {
				if node.children == nil {
					node.children = map[byte]*trie{}
				}
				child = &trie{}
				node.children[s[j]] = child
			}
			node = child
		}
		if node.token == 0 { // of equal spellings the first counts
			node.token = i + 1
		}
	}
	return m
}

// longest returns the longest token at the start of s: its index and length, or -1.
func (m *matcher) longest(s string) (index, length int) {
	index = -1
	node := &m.root
	for i := range len(s) {
		if node = node.children[s[i]]; node == nil {
			break
		}
		if node.token > 0 {
			index, length = node.token-1, i+1
		}
	}
	return index, length
}

// split cuts s at the tokens found: text is called for what lies between them, token for each one.
func (m *matcher) split(s string, text func(string), token func(AddedToken)) {
	done := 0
	for i := 0; i < len(s); {
		if !m.starts[s[i]] {
			i++
			continue
		}
		index, length := m.longest(s[i:])
		if index < 0 {
			i++
			continue
		}
		t, start, end := m.tokens[index], i, i+length
		i = end
		if t.SingleWord && (wordEnds(s[:start]) || wordStarts(s[end:])) {
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
		token(t)
		done = end
	}
	if done < len(s) {
		text(s[done:])
	}
}

func wordStarts(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	return n > 0 && isWord(r)
}

func wordEnds(s string) bool {
	r, n := utf8.DecodeLastRuneInString(s)
	return n > 0 && isWord(r)
}

// recogniser holds the added tokens that one way of encoding looks for: first those spelled as they are, then, in the
// normalized rest, the others.
type recogniser struct{ plain, normalized *matcher }

func newRecogniser(tokens []AddedToken, forms []form) recogniser {
	var plain, normalized []AddedToken
	var plainText, normalizedText []string
	for _, t := range tokens {
		if t.Normalized {
			normalized = append(normalized, t)
			normalizedText = append(normalizedText, normalize(forms, t.Content))
		} else {
			plain = append(plain, t)
			plainText = append(plainText, t.Content)
		}
	}
	return recogniser{newMatcher(plain, plainText), newMatcher(normalized, normalizedText)}
}
