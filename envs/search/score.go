package search

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
)

var articles = regexp.MustCompile(`\b(a|an|the)\b`)

// normal is an answer as SQuAD compares it: lower case, without punctuation and articles, single spaces.
func normal(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsPunct(r) || unicode.IsSymbol(r)) {
			return -1
		}
		return r
	}, strings.ToLower(text))
	return strings.Join(strings.Fields(articles.ReplaceAllString(text, " ")), " ")
}

// judge compares an answer with the right ones: whether it is one of them, and its best F1 of words.
func judge(answer string, right []string) (exact bool, f1 float64) {
	answer = normal(answer)
	for _, gold := range right {
		gold = normal(gold)
		if answer == gold {
			return true, 1
		}
		f1 = max(f1, wordF1(answer, gold))
	}
	return false, f1
}

// wordF1 is the harmonic mean of precision and recall of an answer's words. Words that are whole answers match as a
// whole only.
func wordF1(answer, gold string) float64 {
	for _, word := range []string{"yes", "no", "noanswer"} {
		if answer == word || gold == word {
			return 0
		}
	}
	goldWords, words := strings.Fields(gold), strings.Fields(answer)
	all, left := len(goldWords)+len(words), goldWords
	for _, w := range words {
		if i := slices.Index(left, w); i >= 0 {
			left = slices.Delete(left, i, i+1)
		}
	}
	if common := (all - len(words)) - len(left); common > 0 {
		return 2 * float64(common) / float64(all)
	}
	return 0
}
