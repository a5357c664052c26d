// Package orchestrate_test holds the rules between the packages below this folder.
package orchestrate_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestLayers checks what the folders promise: a training step does not depend on what reads finished runs or on other
// programs' spellings. The estimators and the importance weights are formulas without dependencies, and the configuration
// takes their names and options: everybody may import them.
func TestLayers(t *testing.T) {
	formulas := []string{"gyre/orchestrate/loop/advantage", "gyre/orchestrate/loop/importance"}
	for _, rule := range []struct{ from, to string }{
		{"./loop/...", "gyre/orchestrate/compat/"}, {"./loop/...", "gyre/orchestrate/cli"},
		{"./loop/...", "gyre/orchestrate/study/"}, {"./loop/...", "gyre/orchestrate/serve"},
		{"./study/...", "gyre/orchestrate/serve"}, {"./serve/host", "gyre/orchestrate/cli"}, {"./study/plot", "gyre/torch"},
		{"./model/...", "gyre/orchestrate/study/"}, {"./run/...", "gyre/orchestrate/loop/"},
		{"../envs/...", "gyre/orchestrate/"},
		{"../internal/...", "gyre/orchestrate/"},
	} {
		out, err := exec.Command("go", "list", "-deps", rule.from).CombinedOutput()
		if err != nil {
			t.Fatalf("go list: %v\n%s", err, out)
		}
		for _, path := range strings.Fields(string(out)) {
			if strings.HasPrefix(path, rule.to) && !slices.Contains(formulas, path) {
				t.Errorf("%s imports %s", rule.from, path)
			}
		}
	}
}
