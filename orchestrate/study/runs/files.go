package runs

import (
	"fmt"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"gyre/internal/table"
	"gyre/orchestrate/run/rundir"
)

// mostDiff is how many lines are shown of the difference of two files.
const mostDiff = 400

// Files lists the user's files in which runs differ, each by the beginning of its SHA-256. Of two runs the hidden last
// column has what differs in the text, where both keep a copy.
func Files(list []*rundir.Run, labels []string) *table.Table {
	flat := make([]map[string]string, len(list))
	for i, r := range list {
		flat[i] = map[string]string{}
		if r.Info == nil {
			continue
		}
		for name, digest := range r.Info.Files {
			flat[i][name] = digest[:min(12, len(digest))]
		}
		for _, c := range r.Changes() {
			if name, is := strings.CutPrefix(c.Key, rundir.FileKey); is {
				flat[i][name] = untilStep(flat[i][name], c)
			}
		}
	}
	t := differing(flat, labels)
	t.Columns[0].Name = "file"
	if len(list) != 2 {
		return t
	}
	t.Columns = append(t.Columns, table.Column{Name: "diff", Hidden: true})
	for i, row := range t.Rows {
		t.Rows[i] = append(row, fileDiff(row[0].(string), list, labels))
	}
	return t
}

// fileDiff is the unified difference of two runs' copies of a file; "" where one has none.
func fileDiff(name string, list []*rundir.Run, labels []string) string {
	a, b := rundir.Copy(list[0].Dir, name), rundir.Copy(list[1].Dir, name)
	if a == "" || b == "" {
		return ""
	}
	lines := strings.SplitAfter(udiff.Unified(labels[0]+"/"+name, labels[1]+"/"+name, a, b), "\n")
	if more := len(lines) - mostDiff; more > 0 {
		lines = append(lines[:mostDiff], fmt.Sprintf("… %d further lines\n", more))
	}
	return strings.Join(lines, "")
}
