package translate

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/cockroachdb/datadriven"

	"gyre/orchestrate/config"
)

// TestTranslations translates the words of the files below testdata.
func TestTranslations(t *testing.T) {
	for _, file := range []string{"testdata/words", "testdata/runs"} {
		dir := t.TempDir()
		datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "file" {
				err := os.WriteFile(filepath.Join(dir, d.CmdArgs[0].Key), []byte(d.Input), 0o644)
				if err != nil {
					t.Fatal(err)
				}
				return "ok"
			}
			r, err := Words(strings.Fields(strings.ReplaceAll(d.Input, "DIR", dir)))
			if err != nil {
				return strings.ReplaceAll(err.Error(), dir, "DIR")
			}
			var out strings.Builder
			if d.Cmd == "document" {
				out.WriteString(whole(r))
			}
			for _, arg := range d.CmdArgs {
				for _, key := range arg.Vals {
					fmt.Fprintf(&out, "%s = %s\n", key, resolvedValue(t, r.Config, key))
				}
			}
			return strings.TrimSpace(out.String())
		})
	}
}

// whole is all of a result but its configuration.
func whole(r Result) string {
	out := strings.TrimSpace(string(r.Document)) + "\n\n"
	if len(r.Command) > 0 {
		out += "command: " + strings.Join(r.Command, " ") + "\n"
	}
	for _, u := range r.Unused {
		out += fmt.Sprintf("left out: %s=%s: %s\n", u.Key, u.Value, u.Why)
	}
	for _, note := range r.Notes {
		out += "note: " + note + "\n"
	}
	return out
}

// resolvedValue is a key of the resolved configuration, in JSON.
func resolvedValue(t *testing.T, c *config.Config, key string) string {
	text, err := config.Resolved(c)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if _, err := toml.Decode(string(text), &value); err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq(key, ".") {
		switch v := value.(type) {
		case map[string]any:
			value = v[part]
		case []map[string]any:
			i, err := strconv.Atoi(part)
			if err != nil || i >= len(v) {
				return "missing"
			}
			value = v[i]
		}
	}
	shown, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(shown)
}
