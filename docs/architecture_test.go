package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// architecture is the page, and what it says under a heading.
func architecture(t *testing.T, heading string) string {
	t.Helper()
	data, err := os.ReadFile("architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	if heading == "" {
		return string(data)
	}
	_, section, found := strings.Cut(string(data), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("architecture.md has no heading %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

// The reading path is twelve files that exist, each with what it is read for.
func TestReadingPath(t *testing.T) {
	entry := regexp.MustCompile("(?m)^([0-9]+)\\. `([^`]+)`(.*)$")
	steps := entry.FindAllStringSubmatch(architecture(t, "A reading path"), -1)
	if len(steps) != 12 {
		t.Errorf("the path has %d files, expected 12", len(steps))
	}
	for _, step := range steps {
		info, err := os.Stat(filepath.Join("..", step[2]))
		if err != nil || !info.Mode().IsRegular() {
			t.Errorf("step %s: %s is no file", step[1], step[2])
		}
		if !strings.HasPrefix(step[3], ": ") {
			t.Errorf("step %s: %s stands without a reason to read it", step[1], step[2])
		}
	}
}

// What the page names of the code is there: files and folders, from the top or from orchestrate/loop, and the exported
// names of packages.
func TestArchitectureNamesWhatThereIs(t *testing.T) {
	declared := declarations(t)
	path := regexp.MustCompile(`^[\w.-]+(/[\w.-]+)+/?$`)
	name := regexp.MustCompile(`^([a-z]+)\.([A-Z]\w*)$`)
	names, paths := 0, 0
	for _, span := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(architecture(t, ""), -1) {
		text := strings.TrimPrefix(span[1], "go generate ./")
		switch found := name.FindStringSubmatch(text); {
		case found != nil:
			if names++; !declared[text] {
				t.Errorf("%s: no package %s declares it", text, found[1])
			}
		case path.MatchString(text) && !strings.HasPrefix(text, "rollout/"): // which are metrics
			paths++
			_, err := os.Stat(filepath.Join("..", text))
			if _, inLoop := os.Stat(filepath.Join("../orchestrate/loop", text)); err != nil && inLoop != nil {
				t.Errorf("there is no %s", text)
			}
		}
	}
	if names < 20 || paths < 20 {
		t.Errorf("only %d names and %d paths were found on the page", names, paths)
	}
}

// declarations are the exported types and functions of the packages in Go, as package.Name.
func declarations(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	line := regexp.MustCompile(`(?m)^(?:func|type|var|const) ([A-Z]\w*)`)
	for _, root := range []string{"../orchestrate", "../envs", "../internal", "../torch"} {
		err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
				return err
			}
			data, err := os.ReadFile(file)
			for _, found := range line.FindAllSubmatch(data, -1) {
				all[filepath.Base(filepath.Dir(file))+"."+string(found[1])] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}
