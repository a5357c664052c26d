package reward

import (
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// Float is a number that JSON shows as Python does: 1.0, not 1.
type Float float64

// MarshalJSON implements json.Marshaler. A number that is not finite is null.
func (f Float) MarshalJSON() ([]byte, error) {
	x := float64(f)
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return []byte("null"), nil
	}
	format := byte('f')
	if a := math.Abs(x); a != 0 && (a < 1e-4 || a >= 1e16) {
		format = 'e'
	}
	s := strconv.FormatFloat(x, format, -1, 64)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return []byte(s), nil
}

// visible says whether a character would be seen.
func visible(r rune) bool { return !unicode.IsSpace(r) && unicode.IsGraphic(r) }

// lower is the full Unicode lower case (one character may become two), as Python's str.lower.
func lower(s string) string { return cases.Lower(language.Und).String(s) }

// containsWord finds word between characters that are not letters, digits or underscores of any script. (The \b of Go's
// regular expressions knows ASCII only.)
func containsWord(text, word string) bool {
	for from := 0; ; {
		i := strings.Index(text[from:], word)
		if i < 0 {
			return false
		}
		i += from
		before, _ := utf8.DecodeLastRuneInString(text[:i])
		after, _ := utf8.DecodeRuneInString(text[i+len(word):])
		if !wordRune(before) && !wordRune(after) {
			return true
		}
		from = i + len(word)
	}
}

func wordRune(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r) }
