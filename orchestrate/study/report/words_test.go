package report

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/run/rundir"
)

func TestHowRunsEndedInWords(t *testing.T) {
	for _, c := range []struct {
		outcome     rundir.Outcome
		words, mood string
	}{
		{rundir.Outcome{Steps: 3}, "3 steps", ""},
		{rundir.Outcome{Status: "finished", Steps: 35}, "finished, step 35", "good"},
		{rundir.Outcome{Status: "running", Steps: 2}, "running, step 2", ""},
		{rundir.Outcome{Status: "failed", Steps: 2}, "failed, step 2", "bad"},
		{rundir.Outcome{Status: "stopped_early", Steps: 9}, "stopped early at step 9: collapse", "bad"},
		{rundir.Outcome{Status: "stopped_early", Steps: 9, Rule: "low_validation_success"},
			"stopped early at step 9: low validation success", "bad"},
	} {
		if words, m := describe(c.outcome), moods[c.outcome.Status]; words != c.words || m != c.mood {
			t.Errorf("%+v: %q and %q, want %q and %q", c.outcome, words, m, c.words, c.mood)
		}
	}
}

// A page repeats each warning of the log once, and so many different ones that people still read them.
func TestWarningsAreBounded(t *testing.T) {
	dir := t.TempDir()
	var log strings.Builder
	for i := range 2 * mostWarnings {
		fmt.Fprintf(&log, "2026-01-02 03:04:05 warning: number %d\n2026-01-02 03:04:05 no warning\n2026-01-02 "+
			"03:04:05 warning: number 0\n", i)
	}
	if err := os.WriteFile(filepath.Join(dir, "log.txt"), []byte(log.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	got := warnings(&rundir.Run{Dir: dir})
	if len(got) != mostWarnings+1 || got[0] != "number 0" || got[1] != "number 1" ||
		got[mostWarnings] != "12 further warnings are in log.txt" {
		t.Errorf("%d warnings: %q", len(got), got)
	}
	if got := warnings(&rundir.Run{Dir: t.TempDir()}); got != nil {
		t.Errorf("a run without a log warns of %q", got)
	}
}

// Long episodes and long texts are cut, and say how much is missing.
func TestLongEpisodesAreCut(t *testing.T) {
	decode := func(ids []int32) string { return strings.Repeat("é", len(ids)) }
	e := &episode.Episode{Tag: "t", IDs: make([]int32, 2*(mostTurns+3))}
	for i := range mostTurns + 3 {
		e.Turns = append(e.Turns, episode.Turn{Observation: 2 * i, Reply: 2*i + 1, End: 2*i + 2})
	}
	s := newSample("title", e, decode)
	if len(s.Turns) != mostTurns || s.Cut != "3 further turns" || s.Turns[1] != (turn{"é", "é"}) {
		t.Errorf("%d turns, %q, %+v", len(s.Turns), s.Cut, s.Turns[1])
	}
	whole := newSample("title", &episode.Episode{IDs: make([]int32, longest+5)}, decode)
	if len(whole.Turns) != 1 || !strings.HasSuffix(whole.Turns[0].Observation, "é … (5 characters more)") {
		t.Errorf("an episode without turns ends in %.40q",
			whole.Turns[0].Observation[len(whole.Turns[0].Observation)-40:])
	}
}

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
		for _, row := range differences(runs, make([]string, len(runs))).Rows {
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
