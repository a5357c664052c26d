package builtin

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"gyre/envs"
)

var rewrite = flag.Bool("update", false, "write docs/environment-options.md from the options of the environments")

// The reference of options is what the environments say. `go test ./envs/builtin -run OptionsPage -update` writes it.
func TestOptionsPageIsCurrent(t *testing.T) {
	const path = "../../docs/environment-options.md"
	want := optionsPage()
	if *rewrite {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("docs/environment-options.md is not what the environments say (%v): "+
			"run go test ./envs/builtin -run OptionsPage -update", err)
	}
}

// optionsPage lists the options of every type, and for each tag the defaults that differ from those of the first.
func optionsPage() string {
	var b strings.Builder
	b.WriteString("# Options of the environments\n\nThis page lists every tag with the most actions of an episode " +
		"(unless `max_actions` is set), and every option with\nits default. Other names of an option stand in " +
		"brackets. For one tag, with rules and an example state:\n\n    ./gyre env info sokoban\n\n" +
		"Options follow a tag on the command line as they stand here, and in `[[envs]]` as `options = { … }`.\n" +
		"[environments-native.md](environments-native.md) describes the environments.\n")
	specs, types := map[string][]envs.Spec{}, []string{}
	for _, s := range envs.List() {
		if specs[s.Type] == nil {
			types = append(types, s.Type)
		}
		specs[s.Type] = append(specs[s.Type], s)
	}
	slices.Sort(types)
	escape := strings.NewReplacer("\n", " ", "<", "&lt;")
	for _, name := range types {
		first := map[string]string{}
		fmt.Fprintf(&b, "\n## %s\n", name)
		for i, s := range specs[name] {
			var fresh, other []string
			for _, o := range envs.Options(s.NewOptions()) {
				value, _ := json.Marshal(o.Default)
				known, found := first[o.Name]
				switch doc := o.Doc; {
				case !found:
					if len(o.Aliases) > 0 {
						doc += " (`" + strings.Join(o.Aliases, "`, `") + "`)"
					}
					first[o.Name] = string(value)
					fresh = append(fresh, fmt.Sprintf("- `%s=%s`: %s\n", o.Name, value, escape.Replace(doc)))
				case known != string(value):
					other = append(other, fmt.Sprintf("`%s=%s`", o.Name, value))
				}
			}
			fmt.Fprintf(&b, "\n`%s` (%d): %s.", s.Tag, s.MaxActions, s.Doc)
			if i > 0 && len(other) > 0 {
				fmt.Fprintf(&b, " Defaults: %s.", strings.Join(other, ", "))
			}
			b.WriteString("\n")
			if len(fresh) > 0 {
				fmt.Fprintf(&b, "\n%s", strings.Join(fresh, ""))
			}
		}
	}
	return b.String()
}
