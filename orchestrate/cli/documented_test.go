package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gyre/orchestrate/config"
)

// commandLine finds the lines of the guides and configurations that show a command.
var commandLine = regexp.MustCompile(`^(?:[#$>]\s*)*(?:\./)?((?:gyre|make|bash) [^ ].*)$`)

// commandInText finds commands within a sentence.
var commandInText = regexp.MustCompile("`(?:\\./)?((?:gyre|make|bash) [^`]*)`")

var quoted = regexp.MustCompile(`"[^"]*"|'[^']*'`)

// Commands of guides and configurations exist: verbs, flags, scripts, targets, configurations, and the keys that are
// set in them.
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
	checked, keys := 0, 0
	for _, file := range files {
		if filepath.Base(file) == "LOG.md" { // what was true at its time
			continue
		}
		for number, text := range strings.Split(string(readFile(t, file)), "\n") {
			match := commandLine.FindStringSubmatch(strings.TrimSpace(text))
			shown := commandInText.FindAllStringSubmatch(text, -1)
			if match != nil {
				shown = append(shown, match)
			}
			for _, match := range shown {
				command, _, _ := strings.Cut(match[1], "  ") // two spaces and a remark
				command, _, _ = strings.Cut(command, " #")
				words := strings.Fields(quoted.ReplaceAllString(strings.TrimRight(command, "\\"), "x"))
				if strings.ContainsAny(command, "…|;&<>`") || len(words) < 2 || !strings.ContainsAny(words[1],
					"abcdefghijklmnopqrstuvwxyz") || words[1] == "is" || words[1] == "-n" {
					continue
				}
				checked++
				fail := func(why any) {
					t.Errorf("%s:%d: %s: %v", strings.TrimPrefix(file, root+"/"), number+1, command,
						why)
				}
				switch words[0] {
				case "gyre":
					arranged, err := arrange(app, words)
					// a sentence may leave values and arguments out
					if err != nil && !strings.Contains(err.Error(), " needs ") &&
						!strings.Contains(err.Error(), ", got 0 arguments") {
						fail(err)
					}
					at := slices.IndexFunc(arranged, func(w string) bool { return strings.HasPrefix(w, "configs/") })
					if slices.Contains([]string{"train", "sft", "eval", "analyze"}, words[1]) && at >= 0 &&
						at < len(arranged)-1 {
						keys++
						if _, err := config.Load(filepath.Join(root, arranged[at]), arranged[at+1:]); err != nil {
							fail(err)
						}
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
	}
	if checked < 120 || keys < 8 {
		t.Errorf("only %d commands were found, %d of them with keys: has their form changed?", checked, keys)
	}
}

// TestLinksOfTheDocumentation: every link of the README and the pages leads to a file and a heading that exist.
func TestLinksOfTheDocumentation(t *testing.T) {
	out, err := exec.Command("python3", "../../scripts/docs.py", "check").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
