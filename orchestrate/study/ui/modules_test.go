package ui

import (
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"testing"
)

var importLine = regexp.MustCompile(`(?m)^(?:import|export)\b.*"\./(.+)";$`)

// The modules of the pages import each other in one direction: take away what imports nothing, again and again, and
// nothing is left.
func TestModulesHaveNoCircle(t *testing.T) {
	names, err := fs.Glob(static, "static/*.js")
	if err != nil {
		t.Fatal(err)
	}
	left, arrows := map[string][]string{}, 0
	for _, name := range names {
		source, err := static.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		left[path.Base(name)] = nil
		for _, line := range importLine.FindAllSubmatch(source, -1) {
			left[path.Base(name)] = append(left[path.Base(name)], string(line[1]))
			arrows++
		}
	}
	if arrows < len(names)-1 { // every module but the first is imported by another
		t.Fatalf("%d imports found in %d modules", arrows, len(names))
	}
	for before := len(left) + 1; len(left) < before; {
		before = len(left)
		maps.DeleteFunc(left, func(_ string, imports []string) bool {
			return !slices.ContainsFunc(imports, func(name string) bool {
				_, stays := left[name]
				return stays
			})
		})
	}
	for name, imports := range left {
		t.Errorf("%s imports %v, one of which leads back to it, or to another circle", name, imports)
	}
}
