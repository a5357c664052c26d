package report

import (
	"fmt"
	"os"
	"path/filepath"
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
	if unknown := newSample("", &episode.Episode{Unjudged: true}, decode); s.Verdict != "not solved" ||
		unknown.Verdict != "success unknown" {
		t.Errorf("verdicts %q, %q", s.Verdict, unknown.Verdict)
	}
	if len(s.Turns) != mostTurns || s.Cut != "3 further turns" || s.Turns[1] != (turn{"é", "é"}) {
		t.Errorf("%d turns, %q, %+v", len(s.Turns), s.Cut, s.Turns[1])
	}
	whole := newSample("title", &episode.Episode{IDs: make([]int32, longest+5)}, decode)
	if len(whole.Turns) != 1 || !strings.HasSuffix(whole.Turns[0].Observation, "é … (5 characters more)") {
		t.Errorf("an episode without turns ends in %.40q",
			whole.Turns[0].Observation[len(whole.Turns[0].Observation)-40:])
	}
}
