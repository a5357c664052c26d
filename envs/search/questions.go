package search

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"gyre/internal/dataset"
)

// question is a question with all answers that are right, and the titles of the documents that lead there, as far
// as they are known.
type question struct {
	text    string
	answers []string
	support []string
}

// readQuestions reads questions, and the documents that their rows bring with them (HotpotQA's context).
func readQuestions(table *dataset.Table) (questions []question, documents []document, err error) {
	seen := map[document]bool{}
	for i, row := range table.Rows {
		q, err := questionOf(row)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %s: %w", table.Path, table.Place(i), err)
		}
		questions = append(questions, q)
		for _, paragraph := range pairs(row["context"], "title", "sentences") {
			title, isText := paragraph[0].(string)
			sentences, isList := paragraph[1].([]any)
			if !isText || !isList {
				return nil, nil, fmt.Errorf("%s: %s: context: expected titles and lists of sentences", table.Path,
					table.Place(i))
			}
			if d := (document{title, joined(sentences)}); !seen[d] {
				seen[d] = true
				documents = append(documents, d)
			}
		}
	}
	return questions, documents, nil
}

// questionOf reads a row under any of the names that data sets of questions give their columns.
func questionOf(row dataset.Columns) (q question, err error) {
	q.text = firstText(row, "question", "query", "problem")
	for _, name := range []string{"answer", "answers", "golden_answers", "ground_truth", "reward_model"} {
		if q.answers == nil {
			q.answers = answersOf(row[name])
		}
	}
	if q.text == "" || q.answers == nil {
		return q, fmt.Errorf("expected a text in column question, and an answer or a list of them in column answer; "+
			"it has %s", strings.Join(slices.Sorted(maps.Keys(row)), ", "))
	}
	for _, fact := range pairs(row["supporting_facts"], "title", "sent_id") {
		if title, ok := fact[0].(string); ok && !slices.Contains(q.support, title) {
			q.support = append(q.support, title)
		}
	}
	return q, nil
}

// answersOf gives all texts of an answer: it may be a list, and lie in fields that some data sets wrap it in.
func answersOf(v any) (answers []string) {
	switch v := v.(type) {
	case string:
		if v != "" {
			answers = []string{v}
		}
	case []any:
		for _, item := range v {
			answers = append(answers, answersOf(item)...)
		}
	case map[string]any:
		for _, name := range []string{"ground_truth", "target"} {
			answers = append(answers, answersOf(v[name])...)
		}
	}
	return answers
}

// pairs reads a list of pairs, or an object of two columns as long as each other, the second of which may be missing.
func pairs(v any, first, second string) [][2]any {
	var list [][2]any
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			if pair, ok := item.([]any); ok && len(pair) == 2 {
				list = append(list, [2]any{pair[0], pair[1]})
			}
		}
	case map[string]any:
		keys, _ := v[first].([]any)
		values, _ := v[second].([]any)
		for i, key := range keys {
			pair := [2]any{key, nil}
			if i < len(values) {
				pair[1] = values[i]
			}
			list = append(list, pair)
		}
	}
	return list
}

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
