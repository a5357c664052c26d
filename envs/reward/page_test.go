package reward

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"gyre/envs"
)

var rewrite = flag.Bool("update", false, "write docs/reward-options.md from the components")

// The reference of components is what they say. `go test ./envs/reward -run OptionsPage -update` writes it.
func TestOptionsPageIsCurrent(t *testing.T) {
	const path = "../../docs/reward-options.md"
	var b strings.Builder
	b.WriteString("# Options of reward components\n\nThis page lists the reward components that `[[rewards]]` can name, and their " +
		"options with defaults.\n[rewards.md](rewards.md#components) says how to use them.\n")
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(&b, "\n`%s`: %s.\n\n", name, kinds[name].doc)
		for _, o := range envs.Options(kinds[name].defaults) {
			value, _ := json.Marshal(o.Default)
			names := strings.Join(append([]string{o.Name}, o.Aliases...), "`, `")
			fmt.Fprintf(&b, "- `%s=%s`: %s\n", names, value, strings.ReplaceAll(o.Doc, "<", "&lt;"))
		}
	}
	want := strings.TrimRight(strings.ReplaceAll(b.String(), "\n\n\n", "\n\n"), "\n") + "\n"
	if *rewrite {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s is not what the components say (%v): run go test ./envs/reward -run OptionsPage -update", path, err)
	}
}
