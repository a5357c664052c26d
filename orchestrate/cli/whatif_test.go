package cli

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gyre/internal/exitcode"
)

// Without a change the other history is the run itself, to the bit; with one it is the run until the change.
func TestOtherHistories(t *testing.T) {
	for name, overrides := range map[string][]string{
		"plain": nil, "adapter": {"lora.rank=2"}, "asynchronous": {"rollout.staleness=2"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			overrides := append([]string{"checkpoint.keep=9", "filter.strategy=none"}, overrides...)
			mustIn(t, dir, append([]string{"train", tinyConfig(t, dir, "")}, overrides...)...)
			out := mustIn(t, dir, "what-if", "runs/tiny", "--from", "3")
			if reach := lastRow(t, dir, "unchanged"); reach["equal to"] != 6.0 || reach["first step"] != 4.0 {
				t.Errorf("%v\n%s", reach, out)
			}
			weights := func(run string) []byte {
				files, _ := filepath.Glob(filepath.Join(dir, run, "global_step_6/actor/*.safetensors"))
				if len(files) != 1 {
					t.Fatalf("%s: weights %v", run, files)
				}
				return readFile(t, files[0])
			}
			if !bytes.Equal(weights("runs/tiny"), weights("runs/tiny/what-if/unchanged")) {
				t.Error("the weights differ")
			}
			out = mustIn(t, dir, "what-if", "runs/tiny", "--from", "3", "--until", "5", "--without", "group=1@5",
				"--with", "actor.lr=2e-3", "--name", "other")
			if reach := lastRow(t, dir, "other"); reach["equal to"] != 3.0 || reach["last step"] != 5.0 ||
				!strings.Contains(reach["changes"].(string), "without group=1@5, with actor.lr=2e-3") {
				t.Errorf("%v\n%s", reach, out)
			}
			if !strings.Contains(out, "actor/grad_norm") {
				t.Errorf("no difference of the training:\n%s", out)
			}
		})
	}
}

// lastRow is what the file of a history's answer says first.
func lastRow(t *testing.T, dir, name string) map[string]any {
	t.Helper()
	var rows []map[string]any
	if err := json.Unmarshal(readFile(t, filepath.Join(dir, "runs/tiny/what-if", name+".json")), &rows); err != nil {
		t.Fatal(err)
	}
	return rows[0]
}

// A group that is left out leaves the step before it alone, several histories are compared in one table, and a history
// that is there is not run again.
func TestHistoriesWithoutAGroup(t *testing.T) {
	dir := t.TempDir()
	mustIn(t, dir, "train", tinyConfig(t, dir, ""), "checkpoint.keep=9", "filter.strategy=none")
	args := []string{"what-if", "runs/tiny", "--from", "3", "--leave-one-out", "groups", "--top", "2", "--slots", "2"}
	out := mustIn(t, dir, args...)
	for _, want := range []string{"without-group=0@4", "without-group=1@4", "Validation after step 6"} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	played := filepath.Join(dir, "runs/tiny/what-if/without-group=0@4")
	episodes := string(readFile(t, filepath.Join(played, "rollouts/step_4.jsonl")))
	if factual := readFile(t, filepath.Join(dir, "runs/tiny/rollouts/step_4.jsonl")); episodes != string(factual) {
		t.Error("the episodes of the step are others: leaving a group out must not change what is played")
	}
	before, err := os.Stat(filepath.Join(played, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	mustIn(t, dir, args...)
	if after, err := os.Stat(filepath.Join(played, "metrics.jsonl")); err != nil || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("a history that was there was run again (%v)", err)
	}
	for want, args := range map[string][]string{
		"no complete checkpoint after step 9": {"--from", "9"},
		"--from N is missing":                 {},
		"expected env=TAG, row=NAME":          {"--from", "3", "--without", "step=3"},
		"has steps 4 to 6":                    {"--from", "3", "--without", "group=1@3"},
		"has no reward component":             {"--from", "3", "--replace-reward", "format=0"},
		"has played none; there are 0, 1":     {"--from", "3", "--without", "group=99"},
		"did you mean sokoban?":               {"--from", "3", "--without", "env=sokobann"},
		"the last step is 3":                  {"--from", "3", "--until", "3"},
		"actor.lrr":                           {"--from", "3", "--with", "actor.lrr=1"},
		"holds another history":               {"--from", "3", "--with", "actor.lr=1e-4", "--name", "without-group=0@4"},
		"expected groups":                     {"--from", "3", "--leave-one-out", "steps"},
	} {
		code, _, stderr := runIn(t, dir, append([]string{"what-if", "runs/tiny"}, args...)...)
		if code == 0 || !strings.Contains(stderr, want) || want != "holds another history" && code != exitcode.Usage {
			t.Errorf("%v: exit code %d, want %q in\n%s", args, code, want, stderr)
		}
	}
}

// What is predicted of a history without a group is what comes when it is run.
func TestWhyPredictsTheOtherHistory(t *testing.T) {
	dir := t.TempDir()
	mustIn(t, dir, "train", tinyConfig(t, dir, ""), "checkpoint.keep=9", "filter.strategy=none", "actor.mini_batch=16",
		"envs.0.groups=4", "actor.lr=1e-4")
	out := mustIn(t, dir, "why", "runs/tiny", "--step", "5", "--of", "likelihood", "--verify", "3", "--json")
	var rows []struct {
		Group   string
		Without float64 `json:"without it"`
		Came    *float64
	}
	if err := json.Unmarshal([]byte(out), &rows); err != nil || len(rows) != 4 {
		t.Fatalf("%v\n%s", err, out)
	}
	for i, r := range rows {
		if (r.Came != nil) != (i < 3) {
			t.Errorf("group %s: came %v", r.Group, r.Came)
		} else if i < 3 && (r.Without == 0 || math.Abs(*r.Came-r.Without) > 0.15*math.Abs(r.Without)) {
			t.Errorf("group %s: predicted %v, came %v", r.Group, r.Without, *r.Came)
		}
	}
	if text := mustIn(t, dir, "why", "runs/tiny", "--step", "5", "--of", "likelihood", "--by", "env"); !strings.Contains(text,
		"gyre what-if runs/tiny --from 4 --without env=sokoban@5") {
		t.Errorf("no command that proves it:\n%s", text)
	}
	for want, args := range map[string][]string{
		"add --step N":        {"--by", "env"},
		"is not there":        {"--step", "9"},
		"expected group, env": {"--step", "5", "--by", "groups"},
		"no quantity":         {"--step", "5", "--of", "sucess"},
		"have the same":       {"--step", "5", "--of", "success"},
	} {
		code, _, stderr := runIn(t, dir, append([]string{"why", "runs/tiny"}, args...)...)
		if code == 0 || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit code %d, want %q in\n%s", args, code, want, stderr)
		}
	}
}

// Without a step gyre why reads the run's folder: of 16 steps at which nearly every reply was cut off it says so, with a
// command that gyre what-if takes.
func TestWhyNamesACause(t *testing.T) {
	dir := t.TempDir()
	mustIn(t, dir, "train", tinyConfig(t, dir, ""), "checkpoint.keep=9", "filter.strategy=none", "run.steps=12",
		"rollout.max_tokens=1", "early_stop.spread_fraction=0", "run.validate_every=0", "analysis.enabled=false")
	var rows []struct {
		Cause, Proof      string
		Since, Confidence float64
	}
	out := mustIn(t, dir, "why", "runs/tiny", "--json")
	if err := json.Unmarshal([]byte(out), &rows); err != nil || len(rows) == 0 || rows[0].Cause != "truncated replies" ||
		rows[0].Since != 1 || rows[0].Confidence < 0.5 || rows[0].Confidence > 1 {
		t.Fatalf("%v\n%s", err, out)
	}
	command, is := strings.CutPrefix(rows[0].Proof, "gyre ")
	if !is || !strings.Contains(command, "rollout.max_tokens=4") {
		t.Fatalf("the proof: %q", rows[0].Proof)
	}
	if out := mustIn(t, dir, append(strings.Fields(command), "--dry-run")...); !strings.Contains(out, "steps 1 to 12") {
		t.Errorf("%s --dry-run:\n%s", command, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "runs/tiny/what-if")); err == nil {
		t.Error("a dry run has made a folder")
	}
	if out := mustIn(t, dir, "why", "runs/tiny"); !strings.Contains(out, "Suspected causes: ") || !strings.Contains(out, rows[0].Proof) {
		t.Errorf("for people:\n%s", out)
	}
}

// A history that would differ by a changed file, too, is refused, or said to.
func TestHistoriesNeedTheFilesOfTheRun(t *testing.T) {
	dir := t.TempDir()
	template := filepath.Join(dir, "chat.jinja")
	write := func(text string) {
		if err := os.WriteFile(template, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const shown = "{% for m in messages %}{{ m.content }}{% endfor %}"
	write(shown)
	mustIn(t, dir, "train", tinyConfig(t, dir, ""), "checkpoint.keep=9", "model.chat_template="+template,
		"filter.strategy=none", "run.steps=3")
	mustIn(t, dir, "what-if", "runs/tiny", "--from", "2")
	write(shown + " ")
	for _, args := range [][]string{{"--from", "2"}, {"--from", "2", "--name", "other"}} {
		code, _, stderr := runIn(t, dir, append([]string{"what-if", "runs/tiny"}, args...)...)
		if code != exitcode.Usage || !strings.Contains(stderr, "chat.jinja") || !strings.Contains(stderr, "--other-files") {
			t.Errorf("%v: exit code %d\n%s", args, code, stderr)
		}
	}
	if out := mustIn(t, dir, "what-if", "runs/tiny", "--from", "2", "--other-files"); !strings.Contains(out, "other files:") {
		t.Errorf("the change is not said:\n%s", out)
	}
	_, _, stderr := runIn(t, dir, "train", "runs/tiny", "--resume-from", "runs/tiny/global_step_2", "run.name=fork")
	if !strings.Contains(stderr, "other files than in the steps before: "+template) {
		t.Errorf("a run from another's checkpoint does not say it:\n%s", stderr)
	}
}
