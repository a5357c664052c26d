// Package orchestrate_test holds the rules of the whole tree: what may import what, and how long files, functions and
// parameter lists may be.
package orchestrate_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gyre/internal/table"
)

// A room is a folder with all that lies below it. The core is what a training run goes through. What is around it
// starts runs, reads them, or speaks with other programs.
var (
	core = []string{"csrc", "torch", "envs", "internal", "orchestrate/config", "orchestrate/experiment",
		"orchestrate/loop", "orchestrate/model", "orchestrate/run"}
	around = []string{"main.go", "orchestrate/cli", "orchestrate/study", "orchestrate/serve", "orchestrate/compat",
		"configs", "docs", "scripts"}
)

// floors are the rooms from the top down; those of csrc, which Go sees as one, lie lowest. A room imports rooms of
// lower floors only, so that no two import each other, be it through others.
var floors = [][]string{
	{"main.go"},
	{"orchestrate/cli"},
	{"orchestrate/study", "orchestrate/serve", "orchestrate/compat", "scripts"},
	{"orchestrate/loop"},
	{"orchestrate/experiment"},
	{"orchestrate/model", "orchestrate/run"},
	{"orchestrate/config"},
	{"torch", "envs", "configs", "docs"},
	{"internal"},
	{"csrc/capi"},
	{"csrc/engine", "csrc/train", "csrc/fsdp"},
	{"csrc/backend"},
	{"csrc/model"},
	{"csrc/kernels"},
}

// roomOf is the room of a list that a path from the root lies in; "" for none.
func roomOf(path string, rooms []string) string {
	i := slices.IndexFunc(rooms, func(room string) bool { return path == room || strings.HasPrefix(path, room+"/") })
	if i < 0 {
		return ""
	}
	return rooms[i]
}

// sources are the Go and C++ files of the rooms with their text, by their paths from the root.
func sources(t *testing.T) map[string]string {
	t.Helper()
	root, found := os.DirFS(".."), map[string]string{}
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			known := slices.ContainsFunc(slices.Concat(core, around), func(room string) bool {
				return strings.HasPrefix(room+"/", path+"/") || strings.HasPrefix(path, room+"/")
			})
			if path != "." && !known && !strings.HasPrefix(path, "orchestrate/") || d.Name() == "testdata" {
				return fs.SkipDir
			}
			return nil
		}
		if !slices.Contains([]string{".go", ".cc", ".h", ".cu"}, filepath.Ext(path)) {
			return nil
		}
		text, err := fs.ReadFile(root, path)
		found[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func isTest(path string) bool {
	return strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/tests/")
}

// arrow is an import, of a package by a package or of a header by a file of csrc, in paths from the root.
type arrow struct{ from, to string }

var include = regexp.MustCompile(`(?m)^#include "(.+/.+\.h)"`)

// arrows are the imports within the tree, tests apart.
func arrows(t *testing.T) (all []arrow) {
	t.Helper()
	for _, module := range []string{"..", "../scripts"} {
		list := exec.Command("go", "list", "-f", `{{range .Imports}}{{$.ImportPath}} {{.}}{{"\n"}}{{end}}`, "./...")
		list.Dir = module
		out, err := list.Output()
		if err != nil {
			t.Fatalf("go list in %s: %v", module, err)
		}
		for line := range strings.Lines(string(out)) {
			from, to, _ := strings.Cut(strings.TrimSpace(line), " ")
			if from == "gyre" {
				from = "gyre/main.go"
			}
			if to, ok := strings.CutPrefix(to, "gyre/"); ok {
				all = append(all, arrow{strings.TrimPrefix(from, "gyre/"), to})
			}
		}
	}
	for path, text := range sources(t) {
		if !strings.HasPrefix(path, "csrc/") || isTest(path) {
			continue
		}
		for _, header := range include.FindAllStringSubmatch(text, -1) {
			all = append(all, arrow{path, "csrc/" + header[1]})
		}
	}
	if len(all) < 500 {
		t.Fatalf("found %d imports, expected those of the whole tree", len(all))
	}
	return all
}

// Rooms import downwards, and the core nothing of what is around it.
func TestLayers(t *testing.T) {
	rooms := slices.Concat(floors...)
	floorOf := func(room string) int {
		return slices.IndexFunc(floors, func(floor []string) bool { return slices.Contains(floor, room) })
	}
	for _, a := range arrows(t) {
		from, to := roomOf(a.from, rooms), roomOf(a.to, rooms)
		switch {
		case from == "" || to == "":
			t.Errorf("%s imports %s, and one of them lies in no room: name its folder in floors", a.from, a.to)
		case roomOf(a.from, core) != "" && roomOf(a.to, around) != "":
			t.Errorf("%s is of the core, and imports %s, which is around it", a.from, a.to)
		case from != to && floorOf(from) >= floorOf(to):
			t.Errorf("%s imports %s, but %s does not lie below %s", a.from, a.to, to, from)
		}
	}
}

// What reads runs opens no model: of the packages of study, evaluation alone does, which plays with one, and scale
// plans with the shapes of models that others have opened. The others reach what holds weights through rollout at most,
// whose player shows boards without a model.
func TestStudyOpensNoModel(t *testing.T) {
	holders := []string{"torch", "orchestrate/experiment", "orchestrate/model/checkpoint", "orchestrate/loop/session",
		"orchestrate/loop/train", "orchestrate/loop/generation"}
	imports := map[string][]string{}
	for _, a := range arrows(t) {
		imports[a.from] = append(imports[a.from], a.to)
	}
	for from := range imports {
		if roomOf(from, []string{"orchestrate/study"}) == "" || from == "orchestrate/study/evaluation" ||
			from == "orchestrate/study/scale" {
			continue
		}
		seen, next := map[string]bool{"orchestrate/loop/rollout": true}, []string{from}
		for ; len(next) > 0; next = next[1:] {
			for _, to := range imports[next[0]] {
				if seen[to] {
					continue
				}
				if seen[to] = true; roomOf(to, holders) == "" {
					next = append(next, to)
					continue
				}
				t.Errorf("%s reaches %s, which holds weights, by %s: let package evaluation play, or who calls it "+
					"open the model", from, to, next[0])
			}
		}
	}
}

// Every source lies in the core or around it; `make lint` shows how many lines each room has.
func TestLines(t *testing.T) {
	lines, tests := map[string]int{}, map[string]int{}
	for path, text := range sources(t) {
		room := roomOf(path, slices.Concat(core, around))
		if room == "" && !isTest(path) {
			t.Errorf("%s lies in no room: name its folder in core or around", path)
		}
		if n := strings.Count(text, "\n"); isTest(path) {
			tests[room] += n
		} else {
			lines[room] += n
		}
	}
	shown := table.New("room", "lines", "tests")
	for _, part := range []struct {
		name  string
		rooms []string
	}{{"core", core}, {"around", around}} {
		all := [2]int{}
		for _, room := range part.rooms {
			shown.Add(room, lines[room], tests[room])
			all[0], all[1] = all[0]+lines[room], all[1]+tests[room]
		}
		shown.Add(part.name+" in all", all[0], all[1])
	}
	fmt.Print(shown.Text(80)) // go test shows it in the folder of the package alone
}
