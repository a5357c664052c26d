package report

import "strings"

// The marks between which a document holds the tables.
const (
	beginMark = "<!-- bench -->\n"
	endMark   = "<!-- /bench -->\n"
)

// Insert puts the tables between a document's marks. A document without marks is replaced.
func Insert(document, tables string) string {
	before, rest, found := strings.Cut(document, beginMark)
	_, after, closed := strings.Cut(rest, endMark)
	if !found || !closed {
		return tables
	}
	return before + beginMark + tables + endMark + after
}
