package evaluation

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/session"
)

var sources = []config.Env{{Tag: "sokoban", Groups: 50, GroupSize: 2, MaxTurns: 3}}

// Success is what people look for: it stands first with the interval of its episodes, and no mean over successes stands
// beside it.
func TestSuccessStandsFirst(t *testing.T) {
	a := Result{"a", session.Evaluation{Metrics: map[string]float64{"charts/return": 2, "sokoban/success": 0.5,
		"sokoban/non-zero/success": 1, "sokoban/num_turns": 1.25}}}
	b := Result{"b", session.Evaluation{Metrics: map[string]float64{"sokoban/success": 0.25}}}
	want := "metric                                     a                            b\n" +
		"sokoban/success    50.0 % [40.4, 59.6] of 100  25.0 % [17.5, 34.3] of 100\n" +
		"charts/return                          2.0000                           -\n" +
		"sokoban/num_turns                      1.2500                           -\n"
	got := Metrics([]Result{a, b}, sources, false).Text(80)
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	if squeeze(got) != squeeze(want) {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if random := Metrics([]Result{a}, sources, true).Text(80); !strings.Contains(random, " of 50\n") {
		t.Errorf("at random each group's state is played once:\n%s", random)
	}
}

func TestSuccessByTurns(t *testing.T) {
	solved := func(turns int) *episode.Episode {
		return &episode.Episode{Success: turns > 0, Turns: make([]episode.Turn, cmp.Or(turns, 3))}
	}
	dir := t.TempDir()
	brief, paths, err := ByTurns("title", []Result{{"a", session.Evaluation{Parameters: 2e6,
		Episodes: []*episode.Episode{solved(1), solved(3), solved(0), solved(3)}}}}, sources, dir)
	if err != nil || len(paths) != 3 {
		t.Fatalf("%v, %v", paths, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "success_by_turns.csv"))
	if err != nil || !strings.HasPrefix(string(text),
		"checkpoint,parameters,turn,episodes,solved,success,low,high\na,2000000,1,4,1,0.25,") ||
		strings.Count(string(text), "\n") != 4 {
		t.Errorf("%s (%v)", text, err)
	}
	if got := brief.Text(80); !strings.Contains(got, "25.0 % [4.6, 69.9]") ||
		!strings.Contains(got, "75.0 % [30.1, 95.4]") || !strings.Contains(got, "2.00 M") {
		t.Errorf("for people:\n%s", got)
	}
}
