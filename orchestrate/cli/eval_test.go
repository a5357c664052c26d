package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gyre/internal/exitcode"
	"gyre/internal/statistics"
)

// Several checkpoints, of whatever kind, in one table and one figure, up to 25 turns in a window that fits.
func TestTwentyFiveTurns(t *testing.T) {
	dir := t.TempDir()
	mustIn(t, dir, "sft", tinyConfig(t, dir,
		"[sft]\nepisodes = 200\nvalidation_episodes = 4\nepochs = 2\nbatch = 4\nlr = 1e-2\n"), "run.name=shown",
		"run.validate_every=0")
	config, err := filepath.Abs("../../configs/sokoban_25_turns.toml")
	if err != nil {
		t.Fatal(err)
	}
	stdout := mustIn(t, dir, "eval", config, "model.path="+tinyPolicy(t), "rollout.prompt=compact",
		"rollout.think=false", "rollout.max_tokens=8", "rollout.max_length=300",
		"validation.temperature=1", "validation.envs.0.groups=40", "--checkpoint", "random="+tinyPolicy(t),
		"--checkpoint", "runs/shown", "--by-turns", "out")
	for _, want := range []string{"random", "shown", "solved by turn", "sokoban/success", "out/success_by_turns.png"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%s is missing:\n%s", want, stdout)
		}
	}
	var rows []struct {
		Checkpoint             string
		Parameters             int64
		Turn, Episodes, Solved int
		Success, Low, High     float64
	}
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
		if e := statistics.Wilson(r.Success, 40, 0.95); r.Low != e.Low || r.High != e.High ||
			r.Success != float64(r.Solved)/40 {
			t.Errorf("row %d: %+v, want the interval [%v, %v]", i, r, e.Low, e.High)
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
	if code, _, stderr := runIn(t, dir, "eval", config, "model.path="+tinyPolicy(t), "--checkpoint", "a",
		"--checkpoint", "b", "--output", "x.jsonl"); code != exitcode.Usage || !strings.Contains(stderr, "there are 2") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
}

// Any number of ranks finds the numbers of one process, whose episodes one file holds.
func TestEvalOverRanks(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, "")
	evaluate := func(name string, args ...string) (string, []byte) {
		t.Helper()
		out := mustIn(t, dir, append([]string{"eval", config, "validation.envs.0.group_size=3", "--json", "--output",
			name + ".jsonl"}, args...)...)
		return out, readFile(t, filepath.Join(dir, name+".jsonl"))
	}
	want, episodes := evaluate("one")
	if !strings.Contains(want, "sokoban/success") || strings.Count(string(episodes), "\n") != 12 {
		t.Fatalf("one process: %s\n%d episodes", want, strings.Count(string(episodes), "\n"))
	}
	cases := map[string][]string{"three": {"--ranks", "3"}}
	if os.Getenv("GYRE_TEST_RANKS") != "" {
		cases["shards"] = []string{"--ranks", "2", "fsdp.shard=full"}
		cases["together"] = []string{"--ranks", "4", "fsdp.shard=full", "engine.tensor_parallel=2"}
	}
	for name, args := range cases {
		got, played := evaluate(name, args...)
		if got != want {
			t.Errorf("%v: %s\nwant %s", args, got, want)
		}
		if !bytes.Equal(played, episodes) {
			t.Errorf("%v: other episodes", args)
		}
	}
	// Several checkpoints one after the other, each opened and closed by all ranks.
	two := []string{"eval", config, "--checkpoint", "a=" + tinyPolicy(t), "--checkpoint", "b=" + tinyPolicy(t),
		"--by-turns"}
	one, many := mustIn(t, dir, append(two, "turns1")...), mustIn(t, dir, append(two, "turns2", "--ranks", "2")...)
	if strings.ReplaceAll(many, "turns2/", "turns1/") != one {
		t.Errorf("two ranks: %s\nwant %s", many, one)
	}
	if against := strings.Index(one, "\nAgainst a, task by task"); against < strings.Index(one, "95 % intervals: ") ||
		strings.Contains(one[max(against, 0):], "changed sides") {
		t.Errorf("the paired difference does not come after everything else:\n%s", one)
	}
	if !bytes.Equal(readFile(t, filepath.Join(dir, "turns1/success_by_turns.csv")),
		readFile(t, filepath.Join(dir, "turns2/success_by_turns.csv"))) {
		t.Error("other tables by turns")
	}
	for want, args := range map[string][]string{
		"it plays without a policy, in one process": {"--random", "--ranks", "2"},
		"what one process would need":               {"--dry-run", "--ranks", "2"},
		"--ranks is 0":                              {"--ranks", "0"},
	} {
		if code, _, stderr := runIn(t, dir, append([]string{"eval", config}, args...)...); code != exitcode.Usage ||
			!strings.Contains(stderr, want) {
			t.Errorf("%v: exit code %d, want %q:\n%s", args, code, want, stderr)
		}
	}
}

// model.dtype = auto is decided when a run begins, and recorded: resumed, evaluated and analysed it keeps its type on
// processors that prefer another.
func TestTypeIsSettledOnce(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, "")
	command := func(args ...string) (stdout, stderr string) {
		t.Helper()
		cmd := gyre(t, dir, append(args, "run.validate_every=0", "analysis.enabled=false", "actor.lr=1e-3")...)
		if runtime.GOARCH == "amd64" {
			// which is no faster in bfloat16; other processors have no variants
			cmd.Env = append(cmd.Env, "GYRE_ISA=avx2")
		}
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			t.Fatalf("gyre %v: %v\n%s", args, err, errs.String())
		}
		return out.String(), errs.String()
	}
	recorded := func(run, want string) {
		t.Helper()
		text := string(readFile(t, filepath.Join(dir, "runs", run, "config.toml")))
		if !strings.Contains(text, "\ndtype = \""+want+"\"") {
			t.Errorf("config.toml of %s does not say %s:\n%s", run, want, text)
		}
	}
	said := func(stderr, want string) {
		t.Helper()
		if !strings.Contains(stderr, `model.dtype = "auto": `+want) {
			t.Errorf("not said: %q\n%s", want, stderr)
		}
	}

	stdout, stderr := command("train", config, "--dry-run", "model.dtype=auto")
	if said(stderr, "float32, this processor's kernels ("); !strings.Contains(stdout, `dtype = "float32"`) {
		t.Errorf("the plan's configuration is\n%s", stdout)
	}
	_, stderr = command("train", config, "model.dtype=auto", "run.name=fresh", "run.steps=1", "--ranks", "2")
	said(stderr, "float32, this processor's kernels (")
	recorded("fresh", "float32")

	command("train", config, "model.dtype=bfloat16", "run.steps=1")
	recorded("tiny", "bfloat16")
	_, stderr = command("train", config, "model.dtype=auto", "run.steps=2", "--resume")
	if said(stderr, "bfloat16, as in runs/tiny"); strings.Contains(stderr, "another configuration") {
		t.Errorf("the type of the run is called a change:\n%s", stderr)
	}
	recorded("tiny", "bfloat16")
	_, stderr = command("analyze", config, "model.dtype=auto", "--checkpoint", "runs/tiny/global_step_2")
	said(stderr, "bfloat16, as in runs/tiny")
	_, stderr = command("eval", config, "model.dtype=auto", "--checkpoint", "runs/tiny/global_step_2/actor")
	said(stderr, "bfloat16, as in runs/tiny")
	_, stderr = command("train", config, "model.dtype=float32", "run.steps=3", "--resume")
	if !strings.Contains(stderr, `model.dtype = "float32" was "bfloat16"`) {
		t.Errorf("a run that goes on in another type does not say so:\n%s", stderr)
	}
}

// An evaluation warns of what it plays; what is to be said of the training was said there.
func TestAnEvaluationWarnsOfItsTasksOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for file, text := range map[string]string{
		"train.jsonl": `{"question": "1+1=", "answer": "2"}`, "held.jsonl": `{"question": "1+2=", "answer": "3"}`,
		"data.toml": fmt.Sprintf("[model]\npath = %q\n[[envs]]\ntag = \"Dataset\"\noptions.file = \"train.jsonl\"\n"+
			"[[validation.envs]]\ntag = \"Dataset\"\noptions.file = \"held.jsonl\"\n[rollout]\ntop_p = 0.9\n", tinyPolicy(t)),
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for command, wanted := range map[string][]string{"eval --dry-run": {"held.jsonl"},
		"train --dry-run": {"held.jsonl", "train.jsonl", "the update trains the whole distribution"}} {
		verb, flag, _ := strings.Cut(command, " ")
		code, _, stderr := runGyre(t, dir, verb, "data.toml", flag)
		if code != 0 {
			t.Fatalf("%s: exit code %d\n%s", command, code, stderr)
		}
		for _, text := range []string{"held.jsonl", "train.jsonl", "the update trains the whole distribution"} {
			if strings.Contains(stderr, text) != slices.Contains(wanted, text) {
				t.Errorf("%s: %q is said wrongly or not at all:\n%s", command, text, stderr)
			}
		}
	}
}
