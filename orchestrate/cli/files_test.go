package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gyre/orchestrate/run/rundir"
)

// The user's files belong to a run: hashed, small ones copied; a resumption says which changed and keeps both, and
// `gyre runs diff` shows what differs.
func TestFilesBelongToTheRun(t *testing.T) {
	dir := t.TempDir()
	reward := func(score string) {
		text := "while read line; do\n  echo " + score + "\ndone\n"
		if err := os.WriteFile(filepath.Join(dir, "reward.sh"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	config := tinyConfig(t, dir, "[[rewards]]\nname = \"judge\"\n"+
		"options = { component = \"command\", command = [\"sh\", \"reward.sh\"] }\n")
	text, err := os.ReadFile(config)
	if err == nil {
		err = os.WriteFile(config, []byte(strings.ReplaceAll(string(text), `"sokoban"`, `"Dataset"`)), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	words := []string{"train", config, "run.validate_every=0", "run.validate_first=false", "analysis.enabled=false"}
	reward("1")
	mustIn(t, dir, append(words, "run.steps=1")...)
	mustIn(t, dir, append(words, "run.steps=1", "run.name=other")...)
	reward("2")
	if _, _, said := runIn(t, dir, append(words, "run.steps=2", "--resume")...); strings.Count(said, "reward.sh") != 1 ||
		!strings.Contains(said, "other files than in the steps before: reward.sh = ") {
		t.Errorf("resumed with another reward: %s", said)
	}
	for name, want := range map[string]string{"code/reward.sh": "echo 2", "code/until_step_1/reward.sh": "echo 1"} {
		if copied, err := os.ReadFile(filepath.Join(dir, "runs/tiny", name)); err != nil ||
			!strings.Contains(string(copied), want) {
			t.Errorf("%s: %q, %v; want %q in it", name, copied, err, want)
		}
	}
	info, err := rundir.ReadInfo(filepath.Join(dir, "runs/tiny"))
	if err != nil || len(info.Files["reward.sh"]) != 64 || len(info.Changes) != 1 ||
		info.Changes[0].Key != "file reward.sh" || info.Changes[0].Step != 1 {
		t.Fatalf("run.json: %+v, %v", info, err)
	}
	shown := mustIn(t, dir, "runs", "diff", "runs/other", "runs/tiny")
	for _, want := range []string{"\nFiles\n", "; to step 1 ", "\n-  echo 1\n", "\n+  echo 2\n"} {
		if !strings.Contains(shown, want) {
			t.Errorf("no %q in:\n%s", want, shown)
		}
	}
	found := map[string]string{}
	for line := range strings.Lines(mustIn(t, dir, "runs", "diff", "--json", "runs/other", "runs/tiny")) {
		if strings.HasPrefix(line, `{"file"`) {
			if err := json.Unmarshal([]byte(line), &found); err != nil {
				t.Fatal(err)
			}
		}
	}
	if found["file"] != "reward.sh" || found["a"] == found["b"] || !strings.Contains(found["diff"], "+  echo 2") {
		t.Errorf("as JSON: %q", found)
	}
}
