package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// commandLine finds the lines of the guides and configurations that show a command.
var commandLine = regexp.MustCompile(`^(?:[#$>]\s*)*(?:\./)?((?:gyre|make|bash) [^ ].*)$`)

var quoted = regexp.MustCompile(`"[^"]*"|'[^']*'`)

// Commands of guides and configurations exist: verbs, flags, scripts, targets, configurations.
func TestDocumentedCommandsExist(t *testing.T) {
	root := "../.."
	var files []string
	for _, pattern := range []string{"README.md", "docs/*.md", "configs/*.toml", "configs/*/*.toml"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	makefile := string(readFile(t, filepath.Join(root, "Makefile")))
	app := newApp(commands(), &bytes.Buffer{}, &bytes.Buffer{})
	checked := 0
	for _, file := range files {
		if filepath.Base(file) == "LOG.md" { // what was true at its time
			continue
		}
		for number, text := range strings.Split(string(readFile(t, file)), "\n") {
			match := commandLine.FindStringSubmatch(strings.TrimSpace(text))
			if match == nil {
				continue
			}
			command, _, _ := strings.Cut(match[1], "  ") // two spaces and a remark
			command, _, _ = strings.Cut(command, " #")
			words := strings.Fields(quoted.ReplaceAllString(strings.TrimRight(command, "\\"), "x"))
			if strings.ContainsAny(command, "…|;&<>`") || len(words) < 2 || !strings.ContainsAny(words[1], "abcdefghijklmnopqrstuvwxyz") || words[1] == "is" {
				continue
			}
			checked++
			fail := func(why any) { t.Errorf("%s:%d: %s: %v", strings.TrimPrefix(file, root+"/"), number+1, command, why) }
			switch words[0] {
			case "gyre":
				if _, err := arrange(app, words); err != nil {
					fail(err)
				}
			case "make":
				for _, target := range words[1:] {
					if !strings.Contains(target, "=") && !strings.Contains(makefile, "\n"+target+":") {
						fail("no such target")
					}
				}
			case "bash":
				if _, err := os.Stat(filepath.Join(root, words[1])); err != nil {
					fail(err)
				}
			}
			for _, word := range words[1:] {
				if strings.HasPrefix(word, "configs/") {
					if _, err := os.Stat(filepath.Join(root, word)); err != nil {
						fail(err)
					}
				}
			}
		}
	}
	if checked < 40 {
		t.Errorf("only %d commands were found: has their form changed?", checked)
	}
}
