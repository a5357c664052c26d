package search

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/kljensen/snowball/english"

	"gyre/internal/dataset"
)

// document is a text with a title.
type document struct{ title, text string }

// The constants of BM25 that Lucene uses.
const (
	saturation    = 1.2
	lengthPenalty = 0.75
)

// posting says how often a term occurs in a document.
type posting struct{ document, count int32 }

// corpus is a list of documents that can be searched. It does not change once it is built.
type corpus struct {
	documents []document
	byTitle   map[string]int // by titleKey; the first one that has it
	terms     map[string][]posting
	lengths   []int32 // in terms
	average   float64
}

func newCorpus(documents []document) *corpus {
	c := &corpus{documents: documents, byTitle: map[string]int{}, terms: map[string][]posting{}}
	stems := map[string]string{}
	total := 0
	for i, d := range documents {
		if _, taken := c.byTitle[titleKey(d.title)]; !taken {
			c.byTitle[titleKey(d.title)] = i
		}
		counts := map[string]int32{}
		terms := termsOf(d.title+"\n"+d.text, stems)
		for _, term := range terms {
			counts[term]++
		}
		for term, count := range counts {
			c.terms[term] = append(c.terms[term], posting{int32(i), count})
		}
		c.lengths = append(c.lengths, int32(len(terms)))
		total += len(terms)
	}
	c.average = float64(total) / float64(len(documents))
	return c
}

func titleKey(title string) string { return strings.ToLower(strings.TrimSpace(title)) }

// termsOf splits a text into the stems of its words, without stop words. stems remembers what words have been
// stemmed; nil: nothing.
func termsOf(text string, stems map[string]string) []string {
	var terms []string
	words := strings.FieldsFunc(strings.ToLower(text),
		func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) })
	for _, word := range words {
		stem, known := stems[word]
		if !known {
			if !english.IsStopWord(word) {
				stem = english.Stem(word, false)
			}
			if stems != nil {
				stems[word] = stem
			}
		}
		if stem != "" {
			terms = append(terms, stem)
		}
	}
	return terms
}

// hit is a document that a query has found.
type hit struct {
	document int
	score    float64
}

// search gives at most n documents that have terms of the query, the best ones first; of equals that which comes
// first in the corpus.
func (c *corpus) search(query string, n int) []hit {
	scores := make([]float64, len(c.documents))
	terms := termsOf(query, nil)
	slices.Sort(terms) // a sum has one order
	for _, term := range slices.Compact(terms) {
		found := c.terms[term]
		rarity := math.Log(1 + (float64(len(c.documents))-float64(len(found))+0.5)/(float64(len(found))+0.5))
		for _, p := range found {
			count := float64(p.count)
			length := 1 - lengthPenalty + lengthPenalty*float64(c.lengths[p.document])/c.average
			scores[p.document] += rarity * count * (saturation + 1) / (count + saturation*length)
		}
	}
	var hits []hit
	for i, score := range scores {
		if score > 0 {
			hits = append(hits, hit{i, score})
		}
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(b.score, a.score) })
	return hits[:min(n, len(hits))]
}

// readDocuments reads the rows of a corpus.
func readDocuments(table *dataset.Table) (documents []document, err error) {
	documents = make([]document, len(table.Rows))
	for i, row := range table.Rows {
		if documents[i], err = documentOf(row); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", table.Path, table.Place(i), err)
		}
	}
	return documents, nil
}

// firstText is the first text in the columns of these names, "" where there is none.
func firstText(row dataset.Columns, names ...string) string {
	for _, name := range names {
		if text, _ := row[name].(string); text != "" {
			return text
		}
	}
	return ""
}

// documentOf reads a row under any of the names that corpora give their columns. Where it has no title the first of
// several lines is one ("\"Title\"\ntext").
func documentOf(row dataset.Columns) (d document, err error) {
	d.title = firstText(row, "title", "name")
	for _, name := range []string{"text", "contents", "content", "passage", "sentences"} {
		if d.text != "" {
			break
		}
		if list, ok := row[name].([]any); ok {
			d.text = joined(list)
		} else {
			d.text, _ = row[name].(string)
		}
	}
	if d.text = strings.TrimSpace(d.text); d.text == "" {
		return d, errors.New("expected a document: a title, and a text in column text, contents, content, passage or " +
			"sentences")
	}
	if first, rest, several := strings.Cut(d.text, "\n"); d.title == "" && several {
		d.title, d.text = strings.Trim(first, `" `), strings.TrimSpace(rest)
	} else if d.title == "" {
		d.title = fmt.Sprint(cmp.Or(row["id"], any(first)))
	}
	return d, nil
}

// joined is the text of a list of sentences.
func joined(sentences []any) string {
	var text strings.Builder
	for _, s := range sentences {
		s, _ := s.(string)
		if text.Len() > 0 && !strings.HasPrefix(s, " ") {
			text.WriteByte(' ')
		}
		text.WriteString(s)
	}
	return text.String()
}
