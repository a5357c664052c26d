// Package quote makes text of other programs fit for messages, logs and terminals: it cannot forge a line of a log,
// move a cursor or fill a screen.
package quote

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text is the text in quotes, with everything that does not print escaped. Of a text longer than most bytes the
// beginning is shown.
func Text(text string, most int) string {
	shown, rest := cut(text, most)
	return strconv.Quote(shown) + rest
}

// End is Text for a text whose end matters most: of a longer one the end is shown.
func End(text string, most int) string {
	if len(text) <= most {
		return strconv.Quote(text)
	}
	at := len(text) - most
	for at < len(text) && !utf8.RuneStart(text[at]) {
		at++
	}
	return "…" + strconv.Quote(text[at:])
}

// Lines is the text as it is, line ends and tabs included, but for other characters that do not print, which are
// escaped. It is for text that is shown as a whole, such as a board.
func Lines(text string) string {
	return escape(text, func(r rune) bool { return r == '\n' || r == '\t' })
}

// longestError bounds the message of an error.
const longestError = 4000

// Error is err with a message of one line in which nothing is left that does not print. errors.Is and errors.As see
// through it.
func Error(err error) error {
	message, rest := cut(err.Error(), longestError)
	safe := escape(message, func(rune) bool { return false }) + rest
	if safe == err.Error() {
		return err
	}
	return &quoted{safe, err}
}

type quoted struct {
	message string
	err     error
}

func (q *quoted) Error() string { return q.message }
func (q *quoted) Unwrap() error { return q.err }

// escape writes what neither prints nor is allowed as Go does in a string literal.
func escape(text string, allowed func(rune) bool) string {
	var b strings.Builder
	for i, r := range text {
		switch _, n := utf8.DecodeRuneInString(text[i:]); {
		case r == utf8.RuneError && n == 1:
			b.WriteString(`\x` + strconv.FormatUint(uint64(text[i])|0x100, 16)[1:])
		case unicode.IsPrint(r) || allowed(r):
			b.WriteRune(r)
		default:
			literal := strconv.QuoteRune(r)
			b.WriteString(literal[1 : len(literal)-1])
		}
	}
	return b.String()
}

// cut gives the first most bytes of a text, whole characters only, and says how many are left, "" for none.
func cut(text string, most int) (shown, rest string) {
	if len(text) <= most {
		return text, ""
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most], "… (" + strconv.Itoa(len(text)-most) + " bytes more)"
}
