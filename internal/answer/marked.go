package answer

import (
	"regexp"
	"strings"
	"unicode"

	"gyre/internal/answer/algebra"
)

// Mark stands before the answer of GSM8K's solutions, and of replies that are asked to end as they do.
const Mark = "####"

// Final is an answer without what stands around it.
type Final struct {
	Text string
	Unit string // "apples" of 42 apples
	Rest string // a sentence behind the answer
	// Marked says that it stood behind a mark.
	Marked bool
}

// Marked reads the answer behind the last mark of a text: to the end of the line or, where nothing follows in it, of
// the next. It is empty where nothing is behind the mark, and Marked is false where there is none.
func Marked(text string) (a Final) {
	if i := strings.LastIndex(text, Mark); i >= 0 {
		line := strings.TrimLeftFunc(Visible(text[i+len(Mark):]), unicode.IsSpace)
		if end := strings.IndexAny(line, "\n\r\v\f\u2028\u2029"); end >= 0 {
			line = line[:end]
		}
		a = Plain(line)
	}
	return a
}

// Gold is the answer of a data set's cell: behind its last mark, in its last box, or all of it.
func Gold(cell string) Final {
	if a := Marked(cell); a.Marked {
		return a
	}
	if content, found := Boxed(cell); found {
		cell = content
	}
	return Final{Text: strings.TrimSpace(Visible(cell))}
}

// Visible leaves out characters that are not seen: byte-order marks, zero-width spaces, soft hyphens, marks of the
// writing direction.
func Visible(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) {
			return -1
		}
		return r
	}, s)
}

var (
	lead     = regexp.MustCompile(`^(?i:(?:the )?(?:final )?answer(?: is\b\s*[:=]?|\s*[:=])|=)\s*`)
	emphasis = regexp.MustCompile(`(^|\s)(?:\*\*([^*\s][^*]*)\*\*|__([^_\s][^_]*)__|` + "`([^`]+)`" +
		`|\*([^*\s][^*]*)\*)`)
	// A stop with words behind it ends an answer that begins as a number does.
	sentence = regexp.MustCompile(`^([-+\p{Sc}\\(]*\d.*?)\.\s+(\pL.*)$`)
	currency = regexp.MustCompile(`(?:\b[A-Z]{1,3})?\\?\p{Sc}\s*|\b(?:USD|EUR|GBP|INR|JPY|Rs\.?)\s*(\d)`)
	spaced   = regexp.MustCompile(`^([-+])\s+`)
	positive = regexp.MustCompile(`^\+([\d.\\])`)
	integral = regexp.MustCompile(`^(-?\d+)\.0+$`)
	// digits go on as long as a number might, grouped are those with separators of thousands.
	digits    = regexp.MustCompile(`\d(?:\d|\.\d|` + separator + `\d)*`)
	grouped   = regexp.MustCompile(`^\d{1,3}(?:` + separator + `\d{3})+(?:\.\d+)?$`)
	separated = regexp.MustCompile(separator)
)

// separator of thousands.
const separator = `(?:(?:\\!)*(?:,|\{,\})(?:\\!)*|\\,|[\x{a0}\x{2009}\x{202f}])`

// Plain reads what stands behind a mark. Currency, separators of thousands, a plus sign, markup and a final stop are no
// part of an answer, and neither are the decimals of 42.0 and the words behind a number. All else stays as it is.
func Plain(line string) Final {
	a := Final{Marked: true}
	s := strings.TrimSpace(line)
	if content, found := Boxed(s); found {
		s = content
	}
	s = lead.ReplaceAllString(emphasis.ReplaceAllString(s, "$1$2$3$4$5"), "")
	if found := sentence.FindStringSubmatch(s); found != nil {
		s, a.Rest = found[1], found[2]
	}
	s = algebra.Trim(strings.TrimRight(algebra.Trim(s), ",;"))
	s = strings.TrimSpace(currency.ReplaceAllString(s, "$1"))
	s = spaced.ReplaceAllString(ungrouped(s), "$1")
	a.Text, a.Unit = Quantity(s)
	a.Text = integral.ReplaceAllString(positive.ReplaceAllString(a.Text, "$1"), "$1")
	return a
}

// ungrouped takes the separators of thousands out of numbers. A comma in brackets may also be that of a tuple.
func ungrouped(s string) string {
	tuple := strings.ContainsAny(s, "([") || strings.Contains(s, `\{`)
	return digits.ReplaceAllStringFunc(s, func(n string) string {
		if !grouped.MatchString(n) || tuple && strings.Count(n, ",") > strings.Count(n, "{,}") {
			return n
		}
		return separated.ReplaceAllString(n, "")
	})
}
