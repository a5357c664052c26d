package runs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"gyre/orchestrate/run/rundir"
)

// Runs are compared by the keys in which they differ; environments are told apart by their place in the list.
func TestConfigurationsAreComparedKeyByKey(t *testing.T) {
	var runs []*rundir.Run
	for i, text := range []string{
		"[run]\nname = \"a\"\nsteps = 5\n[[envs]]\ntag = \"x\"\ngroups = 1\n[[envs]]\ntag = \"y\"\n",
		"[run]\nname = \"b\"\nsteps = 5\n[[envs]]\ntag = \"x\"\ngroups = 2\n[[envs]]\ntag = \"z\"\n[actor]\nlr = 0.5\n",
		"not = [toml",
	} {
		dir := filepath.Join(t.TempDir(), fmt.Sprint(i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "config.toml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, &rundir.Run{Dir: dir})
	}
	rows := func(runs []*rundir.Run) (out []string) {
		for _, row := range Configurations(runs, make([]string, len(runs))).Rows {
			line := ""
			for _, c := range row {
				line += fmt.Sprint(c) + "|"
			}
			out = append(out, line)
		}
		return out
	}
	if got, want := rows(runs[:2]), []string{"actor.lr||0.5|", "envs.0.groups|1|2|",
		`envs.1.tag|"y"|"z"|`}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := rows(runs[1:]); !slices.Contains(got, "run.steps|5||") {
		t.Errorf("beside a configuration that cannot be read: %q", got)
	}
	if got := rows([]*rundir.Run{runs[0], runs[0]}); got != nil {
		t.Errorf("a run differs from itself in %q", got)
	}
}
