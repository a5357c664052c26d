package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gyre/internal/statistics"
)

// Several checkpoints, of whatever kind, in one table and one figure, up to 25 turns in a window that fits.
func TestTwentyFiveTurns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mustGyre(t, dir, "sft", tinyConfig(t, dir, "[sft]\nepisodes = 200\nvalidation_episodes = 4\nepochs = 2\nbatch = 4\nlr = 1e-2\n"), "run.name=shown", "run.validate_every=0")
	config, err := filepath.Abs("../../configs/sokoban_25_turns.toml")
	if err != nil {
		t.Fatal(err)
	}
	stdout := mustGyre(t, dir, "eval", config, "model.path="+tinyPolicy(t), "rollout.prompt=compact", "rollout.think=false", "rollout.max_tokens=8", "rollout.max_length=300",
		"validation.temperature=1", "validation.envs.0.groups=40", "--checkpoint", "random="+tinyPolicy(t), "--checkpoint", "runs/shown", "--by-turns", "out")
	for _, want := range []string{"random", "shown", "solved by turn", "sokoban/success", "out/success_by_turns.png"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%s is missing:\n%s", want, stdout)
		}
	}
	var rows []turnRow
	if err := json.Unmarshal(readFile(t, filepath.Join(dir, "out/success_by_turns.json")), &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) != 50 {
		t.Fatalf("%d rows, want 25 turns of two checkpoints", len(rows))
	}
	longest := 0
	for i, r := range rows {
		if i%25 > 0 && r.Solved < rows[i-1].Solved || r.Turn != i%25+1 || r.Episodes != 40 || r.Parameters == 0 {
			t.Errorf("row %d: %+v", i, r)
		}
		if low, high := statistics.Wilson(r.Success, 40, 0.95); r.Low != low || r.High != high || r.Success != float64(r.Solved)/40 {
			t.Errorf("row %d: %+v, want the interval [%v, %v]", i, r, low, high)
		}
		if r.Checkpoint == "shown" && i%25 > 0 && r.Solved > rows[i-1].Solved {
			longest = r.Turn
		}
	}
	if last := rows[49]; last.Solved == 0 || longest < 2 {
		t.Errorf("the policy that was shown how solved %d levels, the last in turn %d", last.Solved, longest)
	}
	if lines := strings.Count(string(readFile(t, filepath.Join(dir, "out/success_by_turns.csv"))), "\n"); lines != 51 {
		t.Errorf("%d lines of CSV", lines)
	}
	if info, err := os.Stat(filepath.Join(dir, "out/success_by_turns.png")); err != nil || info.Size() < 1000 {
		t.Errorf("the figure: %v", err)
	}
	if code, _, stderr := runGyre(t, dir, "eval", config, "model.path="+tinyPolicy(t), "--checkpoint", "a", "--checkpoint", "b", "--output", "x.jsonl"); code != exitUsage || !strings.Contains(stderr, "there are 2") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
}
