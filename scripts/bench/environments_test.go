package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gyre/scripts/bench/report"
)

// Every environment of the list is timed, RAGEN's beside it where it has one, and what RAGEN cannot do is told.
func TestEnvironments(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "ragen", "env"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GYRE_BENCH_RAGEN_SOURCE", dir)
	python := filepath.Join(dir, "python")
	script := `#!/bin/sh
echo '{"ready": ["FrozenLake", "Bandit"]}'
while read -r task; do
  case $task in
  *FrozenLake*) echo '{"reset": 1, "step": 1e-9}' ;;
  *) echo '{"error": "no bandit"}' ;;
  esac
done
`
	if err := os.WriteFile(python, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	old, seconds := environmentTags, environmentSeconds
	environmentSeconds = 0.02
	environmentTags = []string{"FrozenLake", "Bandit", "MiniSudoku"}
	defer func() { environmentTags, environmentSeconds = old, seconds }()
	list, err := environments(t.Context(), options{repeats: 1, peers: peers,
		pythons: map[string]string{"ragen": python}}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 6 {
		t.Fatalf("%d pairs, want resets and steps of three environments", len(list))
	}
	for i, p := range list {
		if len(p.Gyre) != 1 || p.Gyre[0] <= 0 || len(p.Other) != []int{1, 1, 0, 0, 0, 0}[i] {
			t.Errorf("%+v", p)
		}
	}
	r := report.Report{Pairs: list}
	text, missed := r.Markdown(), r.Missed()
	if !strings.Contains(text, "| FrozenLake: resets") || !strings.Contains(text, "no bandit") ||
		!strings.Contains(text, "≥ 50 ✓") {
		t.Error(text)
	}
	if len(missed) != 1 || !strings.Contains(missed[0], "FrozenLake: steps") {
		t.Errorf("missed %q, want the steps of FrozenLake", missed)
	}
	if list, err = environments(t.Context(), options{repeats: 1}, io.Discard); err != nil || list[0].Other != nil {
		t.Errorf("without peers: %+v, %v", list, err)
	}
}
