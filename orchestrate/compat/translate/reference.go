package translate

import (
	"bytes"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
)

//go:embed introduction.md
var introduction string

// Reference is the page docs/from-ragen.md.
func Reference() []byte {
	var b bytes.Buffer
	b.WriteString(introduction)
	b.WriteString("\n## Task configurations\n\n")
	for _, name := range slices.Sorted(maps.Keys(tasks)) {
		if why, refused := strings.CutPrefix(tasks[name], "!"); refused {
			fmt.Fprintf(&b, "- `%s`: none: %s.\n", name, why)
		} else if settings := tasks[name]; settings != "" {
			fmt.Fprintf(&b, "- `%s`: %s.\n", name, code(settings))
		}
	}
	b.WriteString("\n# Keys of RAGEN and verl\n")
	write(&b, ragen)
	b.WriteString("\n# Keys of the first RAGEN\n\nWhat `train.sh` does not say follows its rules, not Gyre's " +
		"defaults: greedy validation every 100 steps, no filter, symmetric clipping, a penalty of 1 for replies " +
		"without an action, no early stop, no gradient analysis.\n")
	write(&b, trainSh)
	return b.Bytes()
}

func write(b *bytes.Buffer, sections []Section) {
	for _, section := range sections {
		fmt.Fprintf(b, "\n## %s\n\n| theirs | ours | |\n|---|---|---|\n", section.Title)
		for _, r := range section.Rules {
			ours := "—"
			if r.Ours != "" {
				ours = "`" + strings.Join(strings.Split(r.Ours, ", "), "` `") + "`"
			}
			fmt.Fprintf(b, "| %s | %s | %s |\n", code(r.Keys), ours, r.How)
		}
	}
}

func code(words string) string { return "`" + strings.Join(strings.Fields(words), "` `") + "`" }
