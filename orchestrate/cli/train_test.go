package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gyre/internal/dataset"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
)

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// The analysis changes nothing: the run without it has the same weights, and the same metrics but for the analysis's
// own.
func TestAnalysisHasNoSideEffects(t *testing.T) {
	with, without := t.TempDir(), t.TempDir()
	mustIn(t, with, "train", tinyConfig(t, with, ""), "analysis.every=1", "analysis.groups=3", "analysis.group_size=2",
		"analysis.log_prefilter=true", "collapse.every=1")
	mustIn(t, without, "train", tinyConfig(t, without, ""), "analysis.enabled=false")
	for _, file := range []string{"actor/model.safetensors", "critic/model.safetensors",
		"optimizer/actor.safetensors"} {
		file = filepath.Join("runs/tiny/global_step_6", file)
		if !bytes.Equal(readFile(t, filepath.Join(with, file)), readFile(t, filepath.Join(without, file))) {
			t.Errorf("%s differs", file)
		}
	}
	a, b := steadyMetrics(t, filepath.Join(with, "runs/tiny/metrics.jsonl")),
		steadyMetrics(t, filepath.Join(without, "runs/tiny/metrics.jsonl"))
	analysed, measured := 0, 0
	for step, values := range a {
		for name, v := range values {
			if strings.HasPrefix(name, "grad_norm") {
				analysed++
				continue
			}
			if strings.HasPrefix(name, "collapse") {
				measured++
				continue
			}
			if strings.HasPrefix(name, "grad_analysis") || strings.HasPrefix(name, "actor/grad_norm/") ||
				strings.HasPrefix(name, "actor/loss/") || strings.HasPrefix(name, "why/") ||
				strings.HasPrefix(name, "forecast/") {
				continue
			}
			if fmt.Sprint(b[step][name]) != fmt.Sprint(v) { // as text: tables too
				t.Errorf("step %d: %s = %v with analysis, %v without", step, name, v, b[step][name])
			}
		}
	}
	if analysed == 0 || measured == 0 {
		t.Errorf("%d numbers of the analysis and %d of thoughts: nothing was measured", analysed, measured)
	}
}

// Updating on a step's saved episodes repeats that step, and every run proves its sampler exact.
func TestReplayRepeatsAStep(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, "")
	one := []string{"train", config, "run.steps=1", "envs.0.groups=3", "filter.strategy=none"}
	mustIn(t, dir, one...)
	mustIn(t, dir, append(one, "run.name=again", "--replay",
		filepath.Join(dir, "runs/tiny/rollouts/step_1.jsonl"))...)
	if !bytes.Equal(readFile(t, filepath.Join(dir, "runs/tiny/global_step_1/actor/model.safetensors")),
		readFile(t, filepath.Join(dir, "runs/again/global_step_1/actor/model.safetensors"))) {
		t.Error("the replayed step's weights differ from the played one's")
	}
	values, predicted := steadyMetrics(t, filepath.Join(dir, "runs/tiny/metrics.jsonl"))[1], 0
	for name, v := range steadyMetrics(t, filepath.Join(dir, "runs/again/metrics.jsonl"))[1] {
		if strings.HasPrefix(name, "why/") || strings.HasPrefix(name, "forecast/") {
			if predicted++; v != values[name] {
				t.Errorf("replayed, %s = %v, want %v", name, v, values[name])
			}
		}
	}
	if predicted < 8 || values["forecast/change"] == nil {
		t.Errorf("only %d numbers say why the weights moved", predicted)
	}
	if gap, ok := values["rollout/logprob_gap_max"]; !ok || gap != 0.0 {
		t.Errorf("rollout/logprob_gap_max = %v, want exactly 0", gap)
	}
}

// Hand-written groups may have one member: PPO needs no comparison, and the gradient analysis says why it is left out.
func TestReplayOfSingleEpisodes(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, "")
	episodes := filepath.Join(dir, "episodes.jsonl")
	rows := `{"group":0,"ids":[1,2,3],"mask":[0,1,1],"rewards":[[2,1]],"score":1}
{"group":1,"ids":[1,2,3,4],"mask":[0,0,1,1],"rewards":[[3,-1]],"score":-1}
`
	if err := os.WriteFile(episodes, []byte(rows), 0o644); err != nil {
		t.Fatal(err)
	}
	for override, want := range map[string]string{"analysis.groups=0": "nothing is analysed",
		"analysis.groups=3": "no gradient analysis"} {
		code, _, stderr := runIn(t, dir, "train", config, "run.steps=1", "run.name="+override, "actor.mini_batch=2",
			override, "--replay", episodes)
		if code != 0 || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, want %q in\n%s", override, code, want, stderr)
		}
	}
}

// Threads change nothing on the sampling side: the first step's episodes are the same with one and with two.
func TestThreadsDoNotChangeEpisodes(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	mustIn(t, one, "train", tinyConfig(t, one, ""), "run.steps=1", "run.threads=1")
	mustIn(t, two, "train", tinyConfig(t, two, ""), "run.steps=1", "run.threads=2")
	episodes := "runs/tiny/rollouts/step_1.jsonl"
	if !bytes.Equal(readFile(t, filepath.Join(one, episodes)), readFile(t, filepath.Join(two, episodes))) {
		t.Error("episodes differ")
	}
}

// Speculation changes nothing but the time: not what is played, nor what is learned from it.
func TestSpeculationChangesNothing(t *testing.T) {
	plain, trying := t.TempDir(), t.TempDir()
	mustIn(t, plain, "train", tinyConfig(t, plain, ""), "engine.speculation=off", "rollout.temperature=0.02")
	mustIn(t, trying, "train", tinyConfig(t, trying, ""), "engine.speculation=auto", "rollout.temperature=0.02")
	sameRun(t, filepath.Join(plain, "runs/tiny"), filepath.Join(trying, "runs/tiny"))
	// most is of the step with the most tokens a pass: on a busy machine speculation may pause in any one step.
	figures := func(dir string) (proposed, accepted, most float64) {
		for record, err := range metrics.Read(filepath.Join(dir, "runs/tiny/metrics.jsonl")) {
			if err != nil {
				t.Fatal(err)
			}
			if _, plays := record.Values["perf/proposed_tokens"]; !plays {
				continue // a validation
			}
			proposed += record.Values["perf/proposed_tokens"].(float64)
			accepted += record.Values["perf/accepted_tokens"].(float64)
			most = max(most, record.Values["perf/tokens_per_pass"].(float64))
		}
		return
	}
	if proposed, accepted, most := figures(plain); proposed != 0 || accepted != 0 || most != 1 {
		t.Errorf("plain: %v proposed, %v accepted, %v tokens a pass", proposed, accepted, most)
	}
	if proposed, accepted, most := figures(trying); accepted < 10 || accepted > proposed || most <= 1 {
		t.Errorf("speculating: %v proposed, %v accepted, at most %v tokens a pass", proposed, accepted, most)
	}
}

func TestCollapseRulesExitWithFive(t *testing.T) {
	dir := t.TempDir()
	// One token is never a whole answer: every episode earns the same penalties and no group has a spread.
	code, _, stderr := runIn(t, dir, "train", tinyConfig(t, dir, ""), "rollout.max_tokens=1",
		"filter.include_zero=false", "early_stop.empty_steps=3", "checkpoint.keep=1")
	if code != 5 {
		t.Fatalf("exit code %d, want 5\n%s", code, stderr)
	}
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	if last := lines[len(lines)-1]; !strings.Contains(last, "stopped early") {
		t.Errorf("the last line does not say why: %q", last)
	}
	var info struct{ Status, Reason string }
	if err := json.Unmarshal(readFile(t, filepath.Join(dir, "runs/tiny/run.json")), &info); err != nil {
		t.Fatal(err)
	}
	if info.Status != "stopped_early" || !strings.Contains(info.Reason, "no group for 3 steps") {
		t.Errorf("run.json says %+v", info)
	}
	if text := string(readFile(t, filepath.Join(dir, "runs/tiny/log.txt"))); !strings.Contains(text, info.Reason) {
		t.Errorf("log.txt does not say why the run ended:\n%s", text)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "runs/tiny/global_step_*")); len(left) != 1 ||
		filepath.Base(left[0]) != "global_step_2" {
		t.Errorf("with checkpoint.keep = 1, %v are left", left)
	}
}

// Errors of usage and configuration: exit code 2, everything at once, and no run directory.
func TestConfigurationErrorsLeaveNothing(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, "[filtr]\nvalue = 1\n[engine]\nkv_mib = \"lots\"\n")
	code, stdout, stderr := runIn(t, dir, "train", config, "actor.lrr=1")
	if code != 2 || stdout != "" {
		t.Fatalf("exit code %d, stdout %q", code, stdout)
	}
	for _, want := range []string{"filtr", "filter", "kv_mib", "actor.lrr", "lr", filepath.Base(config)} {
		if !strings.Contains(stderr, want) {
			t.Errorf("stderr does not mention %q:\n%s", want, stderr)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "runs")); err == nil {
		t.Error("a run directory was made")
	}
	code, _, stderr = runIn(t, dir, "train", tinyConfig(t, dir, ""), "model.path=none")
	if _, err := os.Stat(filepath.Join(dir, "runs/tiny")); code != 2 || err == nil {
		t.Errorf("a run that could not start left its directory (exit code %d)\n%s", code, stderr)
	}
}

func TestARunIsNeverOverwritten(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, "")
	mustIn(t, dir, "train", config, "run.steps=1")
	before := readFile(t, filepath.Join(dir, "runs/tiny/metrics.jsonl"))
	code, _, stderr := runIn(t, dir, "train", config, "run.steps=1")
	if code == 0 || !strings.Contains(stderr, "--resume") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
	if !bytes.Equal(before, readFile(t, filepath.Join(dir, "runs/tiny/metrics.jsonl"))) {
		t.Error("the old run's metrics changed")
	}
}

func TestCorruptCheckpoints(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, "")
	mustIn(t, dir, "train", config, "run.steps=2")
	flip := func(step string) {
		path := filepath.Join(dir, "runs/tiny", step, "actor/model.safetensors")
		data := readFile(t, path)
		data[len(data)/2] ^= 1
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	flip("global_step_2")
	code, _, stderr := runIn(t, dir, "train", config, "run.steps=2", "--resume")
	if code != 0 || !strings.Contains(stderr, "passed over") || !strings.Contains(stderr, "global_step_1") {
		t.Fatalf("one bad checkpoint: exit code %d\n%s", code, stderr)
	}
	code, _, stderr = runIn(t, dir, "train", config, "run.steps=3", "--resume", "actor.lr=0.5")
	if code != 0 || strings.Count(stderr, "another configuration") != 1 ||
		!strings.Contains(stderr, "actor.lr = 0.5 was 0.001") {
		t.Errorf("another learning rate, exit code %d:\n%s", code, stderr)
	}
	info, err := rundir.ReadInfo(filepath.Join(dir, "runs/tiny"))
	if err != nil || len(info.Changes) != 1 || info.Changes[0].Step != 2 ||
		info.Changes[0].String() != "actor.lr = 0.5 was 0.001" {
		t.Errorf("run.json has the changes %+v (%v)", info.Changes, err)
	}
	flip("global_step_2")
	flip("global_step_3")
	code, _, stderr = runIn(t, dir, "train", config, "run.steps=3", "--resume")
	if code != 4 || !strings.Contains(stderr, "SHA-256") {
		t.Fatalf("no good checkpoint: exit code %d, want 4\n%s", code, stderr)
	}
}

// Whoever uses a checkpoint finds the damage, whichever byte of whichever file it is in, before anything else is said
// of it.
func TestCheckpointsWithAnyByteFlipped(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, "[sft]\nepisodes = 8\nvalidation_episodes = 2\nepochs = 2\nbatch = 4\n")
	mustIn(t, dir, "train", config, "run.steps=1")
	mustIn(t, dir, "sft", config, "run.name=warm", "sft.epochs=1")
	t.Chdir(dir)
	const step, warm = "runs/tiny/global_step_1", "runs/warm/global_step_1"
	if err := os.WriteFile("rows.jsonl", []byte(`{"ids": [5, 6]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	uses := []struct{ part, command string }{ // what a command reads of a step's folder: all of it, or one model
		{"", "eval CONFIG --checkpoint STEP"},
		{"", "eval CONFIG --checkpoint runs/tiny"},
		{"", "analyze CONFIG --checkpoint STEP"},
		{"", "train CONFIG --resume run.steps=2"},
		{"", "train CONFIG run.name=again --resume-from STEP"},
		{"", "train CONFIG run.name=again --resume-from STEP --dry-run"},
		{"", "sft CONFIG run.name=warm --resume"},
		{"actor", "eval CONFIG --checkpoint STEP/actor"},
		{"actor", "analyze CONFIG --checkpoint STEP/actor"},
		{"actor", "train CONFIG run.name=new model.path=STEP/actor"},
		{"actor", "train CONFIG run.name=new algorithm.kl_coef=0.1 model.reference=STEP/actor"},
		{"actor", "sft CONFIG run.name=new model.path=STEP/actor"},
		{"actor", "score --model STEP/actor --input rows.jsonl"},
		{"actor", "generate --model STEP/actor --input rows.jsonl"},
		{"actor", "tokenize --model STEP/actor"},
		{"actor", "model info STEP/actor"},
		{"actor", "model convert STEP/actor other"},
		{"critic", "train CONFIG run.name=new critic.path=STEP/critic"},
	}
	random := rand.New(rand.NewPCG(testSeed(t), 2))
	tried := map[string]int{}
	for _, folder := range []string{step, warm} {
		var files []string
		for path := range contents(t, filepath.Join(dir, folder)) {
			files = append(files, path)
		}
		slices.Sort(files)
		if folder == step {
			files = slices.Concat(files, files)
		}
		for _, path := range files {
			whole := readFile(t, path)
			name, _ := filepath.Rel(filepath.Join(dir, folder), path)
			part, _, _ := strings.Cut(filepath.ToSlash(name), "/")
			var fitting []string // those that were tried least come first
			for _, i := range random.Perm(len(uses)) {
				u := uses[i]
				supervised := strings.HasPrefix(u.command, "sft CONFIG run.name=warm")
				unread := strings.HasPrefix(u.command, "tokenize") && strings.HasSuffix(name, ".safetensors")
				if (folder == warm) == supervised && !unread &&
					(u.part == "" || u.part == part || name == "manifest.json") {
					fitting = append(fitting, strings.NewReplacer("CONFIG", config, "STEP", folder).Replace(u.command))
				}
			}
			slices.SortStableFunc(fitting, func(a, b string) int { return tried[a] - tried[b] })
			command := fitting[0]
			tried[command]++
			at, change := random.IntN(len(whole)), byte(1+random.IntN(255))
			damaged := bytes.Clone(whole)
			damaged[at] ^= change
			if err := os.WriteFile(path, damaged, 0o644); err != nil {
				t.Fatal(err)
			}
			code, _, stderr := runHere(t, strings.Fields(command)...)
			if code != 4 || !strings.Contains(stderr, filepath.Join(folder, name)) {
				t.Errorf("gyre %s with byte %d of %s changed by %#x: exit code %d, want 4\n%s", command, at, name,
					change, code, stderr)
			}
			if err := os.WriteFile(path, whole, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(tried) != len(uses) {
		t.Errorf("%d of %d uses of a checkpoint were tried: %v", len(tried), len(uses), tried)
	}
	mustIn(t, dir, "eval", config, "--checkpoint", step)
}

func TestSupervisedFineTuningAndEvaluation(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, "[sft]\nepisodes = 24\nvalidation_episodes = 8\nepochs = 3\nbatch = 4\nlr = 1e-2\n")
	mustIn(t, dir, "sft", config, "run.name=warm")
	for split, episodes := range map[string]int{"train": 24, "test": 8} {
		lines, err := dataset.Read(filepath.Join(dir, "runs/warm/demonstrations", split+".jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		parquet, err := dataset.Read(filepath.Join(dir, "runs/warm/demonstrations", split+".parquet"))
		if err != nil || len(parquet.Rows) != len(lines.Rows) || len(lines.Rows) < episodes {
			t.Fatalf("%s: %d rows as JSONL, %d as Parquet, of %d episodes (%v)", split, len(lines.Rows),
				len(parquet.Rows), episodes, err)
		}
		for i, row := range lines.Rows {
			extra, _ := row["extra_info"].(map[string]any)
			prompt, _ := row["prompt"].(string)
			response, _ := row["response"].(string)
			if extra["split"] != split || row["data_source"] != "sokoban" || !strings.Contains(prompt, "#") ||
				response == "" || parquet.Rows[i]["prompt"] != prompt ||
				parquet.Rows[i]["response"] != response {
				t.Errorf("%s row %d: %v, as Parquet %v", split, i, row, parquet.Rows[i])
			}
		}
	}
	// As a step of its own: the same files, and weights to the bit.
	mustIn(t, dir, "data", "demonstrations", config, "--output", "shown")
	for _, name := range []string{"train.jsonl", "test.parquet", "episodes.jsonl"} {
		if !bytes.Equal(readFile(t, filepath.Join(dir, "shown", name)),
			readFile(t, filepath.Join(dir, "runs/warm/demonstrations", name))) {
			t.Errorf("%s is not what gyre sft left", name)
		}
	}
	mustIn(t, dir, "sft", config, "run.name=given", "sft.data=shown/episodes.jsonl")
	final := "global_step_3/actor/model.safetensors"
	if !bytes.Equal(readFile(t, filepath.Join(dir, "runs/given", final)),
		readFile(t, filepath.Join(dir, "runs/warm", final))) {
		t.Error("demonstrations that are read teach something else than those that are made")
	}
	values := steadyMetrics(t, filepath.Join(dir, "runs/warm/metrics.jsonl"))
	// 6 optimizer steps per epoch, each logged
	if len(values) != 18 || values[6]["train/epoch"] != 1.0 ||
		values[3]["train/loss"] == nil {
		t.Errorf("%d lines of metrics: %v", len(values), values[6])
	}
	// The episodes of the validation go by the step of its metrics.
	played, err := filepath.Glob(filepath.Join(dir, "runs/warm/rollouts/*"))
	if err != nil || len(played) != 1 || filepath.Base(played[0]) != "validation_18.jsonl" ||
		!strings.Contains(string(readFile(t, played[0])), `"step":18`) ||
		values[18]["val-env/sokoban/success"] == nil {
		t.Errorf("the validation was saved as %v (%v), its metrics are %v", played, err, values[18])
	}
	first, last := values[6]["val/loss"].(float64), values[18]["val/loss"].(float64)
	if last >= first || last <= 0 {
		t.Errorf("validation loss went from %v to %v", first, last)
	}
	// A run that ends after its first epoch and is resumed equals one that was not disturbed.
	epoch := []string{"sft", config, "run.name=resumed", "run.save_every=1", "sft.schedule=constant"}
	mustIn(t, dir, append(epoch, "sft.epochs=1", "run.validate_every=0")...)
	mustIn(t, dir, append(epoch, "--resume")...)
	mustIn(t, dir, append(epoch, "run.name=whole")...)
	weights := "global_step_3/actor/model.safetensors"
	if !bytes.Equal(readFile(t, filepath.Join(dir, "runs/whole", weights)),
		readFile(t, filepath.Join(dir, "runs/resumed", weights))) {
		t.Error("a resumed run's weights differ from an undisturbed one's")
	}
	var result map[string]float64
	stdout := mustIn(t, dir, "eval", config, "--checkpoint", filepath.Join(dir, "runs/warm/global_step_3"), "--json")
	if err := json.Unmarshal([]byte(stdout), &result); err != nil {
		t.Fatal(err)
	}
	if _, ok := result["sokoban/success"]; !ok {
		t.Errorf("eval printed %v", result)
	}
	if _, err := os.Stat(filepath.Join(dir, "runs/tiny")); err == nil {
		t.Error("eval made a run directory")
	}
	baseline := mustIn(t, dir, "eval", config, "--random", "validation.envs.0.groups=300")
	// Success is the first metric of the table, with its interval.
	if !regexp.MustCompile(`^metric +value\nsokoban/success +\d+\.\d % \[\d+\.\d, \d+\.\d\] of 300\n`).MatchString(baseline) || strings.Contains(baseline, "non-zero") {
		t.Errorf("the random baseline is\n%s", baseline)
	}
}

// The best epoch by the held-out loss is kept, validated and named, whatever comes after it, with any number of ranks;
// RL starts from it.
func TestBestEpochIsKept(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir,
		"[sft]\nepisodes = 16\nvalidation_episodes = 8\nepochs = 4\nbatch = 4\nlr = 30.0\nschedule = "+
			"\"constant\"\nwarmup_steps = 16\n")
	for name, ranks := range map[string][]string{"alone": nil, "shards": {"--ranks", "2"},
		"replicas": {"--ranks", "2", "fsdp.shard=none"}} {
		t.Run(name, func(t *testing.T) {
			run := filepath.Join(dir, "runs", name)
			code, _, stderr := runIn(t, dir, append([]string{"sft", config, "run.name=" + name, "checkpoint.keep=1"},
				ranks...)...)
			if code != 0 {
				t.Fatalf("exit code %d\n%s", code, stderr)
			}
			values := steadyMetrics(t, filepath.Join(run, "metrics.jsonl"))
			best, lowest := 0, math.Inf(1)
			for epoch := 1; epoch <= 4; epoch++ {
				line := values[4*epoch]
				if loss := line["val/loss"].(float64); loss < lowest {
					best, lowest = epoch, loss
				}
				if line["val/best_epoch"] != float64(best) || line["val/best_loss"] != lowest {
					t.Errorf("epoch %d: best %v with %v, want %d with %v", epoch, line["val/best_epoch"],
						line["val/best_loss"], best, lowest)
				}
			}
			if best == 4 {
				t.Fatal("the last epoch is the best: this test shows nothing")
			}
			if target, err := os.Readlink(filepath.Join(run, "best")); err != nil ||
				target != fmt.Sprint("global_step_", best) ||
				!strings.Contains(stderr, "model.path=runs/"+name+"/best/actor") {
				t.Errorf("best is %s (%v)\n%s", target, err, stderr)
			}
			found, _ := filepath.Glob(filepath.Join(run, "global_step_*"))
			if len(found) != 2 {
				t.Errorf("checkpoints %v, want those of the best epoch and of the last", found)
			}
			var result map[string]float64
			if err := json.Unmarshal([]byte(mustIn(t, dir, "eval", config, "--checkpoint", filepath.Join(run, "best"),
				"--json")), &result); err != nil {
				t.Fatal(err)
			}
			if got := values[16]["val-env/sokoban/episodic_return"]; got == nil ||
				got != result["sokoban/episodic_return"] {
				t.Errorf("the run validated %v, the best epoch has %v", got, result["sokoban/episodic_return"])
			}
			if name == "replicas" { // as shards do
				return
			}
			mustIn(t, dir, append([]string{"train", config, "run.name=after-" + name, "run.steps=1", "model.path=" +
				filepath.Join(run, "best/actor")}, ranks...)...)
		})
	}
}
