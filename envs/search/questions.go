package search

import (
	"fmt"
	"maps"
	"slices"
	"strings"

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
			return nil, nil, fmt.Errorf("%s row %d: %w", table.Path, i, err)
		}
		questions = append(questions, q)
		for _, paragraph := range pairs(row["context"], "title", "sentences") {
			title, isText := paragraph[0].(string)
			sentences, isList := paragraph[1].([]any)
			if !isText || !isList {
				return nil, nil, fmt.Errorf("%s row %d: context: expected titles and lists of sentences", table.Path, i)
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
