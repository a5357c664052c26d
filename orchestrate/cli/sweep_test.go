package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"gyre/internal/child/childtest"
	"gyre/internal/exitcode"
)

// tinyStudy writes a study of the tiny policy: two conditions that finish, one that a collapse rule stops, one that
// cannot start.
func tinyStudy(t *testing.T, dir string) string {
	t.Helper()
	return studyOf(t, dir, `
seeds = 2
slots = 2
set = ["run.steps=3", "run.validate_every=1", "analysis.enabled=false", "early_stop.low_success_count=0"]
baseline = "nofilter"
[[axes]]
key = "filter.value"
values = [0.9, "nofilter"]
named = { nofilter = ["filter.value=1", "filter.include_zero=true"] }
[[conditions]]
label = "collapses"
set = ["early_stop.low_success=1", "early_stop.low_success_count=2"]
[[conditions]]
label = "cannot start"
set = ["model.path=nowhere"]
`)
}

// studyOf writes a study of the tiny policy, study.toml: text goes on in its table [study].
func studyOf(t *testing.T, dir, text string) string {
	t.Helper()
	tinyConfig(t, dir, "")
	text = "[study]\nname = \"tiny\"\nbase = \"tiny.toml\"\nthreads_per_run = 1\n" + text
	path := filepath.Join(dir, "study.toml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// summary reads the summary.json in a study's folder without what time is spent on.
func summary(t *testing.T, study string) (rows []map[string]any) {
	t.Helper()
	if err := json.Unmarshal(readFile(t, filepath.Join(study, "summary.json")), &rows); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		for _, key := range []string{"seconds", "train_seconds", "eval_seconds", "wall_seconds"} {
			delete(row, key)
		}
	}
	return rows
}

// killWhenStepsAreLogged starts a command so many times, and kills it each time as soon as the runs of its study have
// logged more than before. A command that has nothing left to do is not killed; the first one has.
func killWhenStepsAreLogged(t *testing.T, dir string, times int, args ...string) {
	t.Helper()
	logged := func() (lines int) {
		found, _ := filepath.Glob(filepath.Join(dir, "studies/tiny/runs/*/*/metrics.jsonl"))
		for _, path := range found {
			lines += bytes.Count(readFile(t, path), []byte("\n"))
		}
		return lines
	}
	kills := 0
	defer func() {
		if kills == 0 {
			t.Error("no kill hit the command at work")
		}
	}()
	for range times {
		before := logged()
		cmd := gyre(t, dir, args...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		for logged() <= before {
			select {
			case <-ended: // nothing is left to do
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
		cmd.Process.Kill()
		if <-ended; childtest.EndedBy(cmd, syscall.SIGKILL) {
			kills++
		}
	}
}

func TestStudySurvivesKills(t *testing.T) {
	t.Parallel()
	undisturbed := t.TempDir()
	code, stdout, stderr := runGyre(t, undisturbed, "sweep", tinyStudy(t, undisturbed))
	if code != exitcode.Failed || !strings.Contains(stderr, "2 of 8 runs failed") || !strings.Contains(stdout,
		"interquartile mean") || !strings.Contains(stderr, "figures/collapse_timeline.png") {
		t.Fatalf("exit code %d\n%s\n%s", code, stdout, stderr)
	}
	want := summary(t, filepath.Join(undisturbed, "studies/tiny"))
	for _, row := range want[:8] {
		status := map[string]string{"0.9": "finished", "nofilter": "finished", "collapses": "stopped_early",
			"cannot start": "failed"}[row["condition"].(string)]
		steps := map[string]float64{"finished": 3, "stopped_early": 2, "failed": 0}[status]
		if row["status"] != status || row["steps"] != steps {
			t.Errorf("condition %v, seed %v: %v after %v steps, want %s after %v", row["condition"], row["seed"],
				row["status"], row["steps"], status, steps)
		}
	}
	for _, file := range []string{"summary.csv", "summary.log", "state.json", "figures/learning_curves.png",
		"logs/nofilter/seed_2.log", "runs/0.9/seed_1/metrics.jsonl"} {
		if len(readFile(t, filepath.Join(undisturbed, "studies/tiny", file))) == 0 {
			t.Errorf("%s is empty", file)
		}
	}

	killed := t.TempDir()
	study := tinyStudy(t, killed)
	killWhenStepsAreLogged(t, killed, orThorough(2, 6), "sweep", study)
	finished := map[string]time.Time{}
	found, _ := filepath.Glob(filepath.Join(killed, "studies/tiny/runs/*/*/run.json"))
	for _, path := range found {
		if strings.Contains(string(readFile(t, path)), `"status": "done"`) {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			finished[path] = info.ModTime()
		}
	}
	if code, _, stderr := runGyre(t, killed, "sweep", study); code != exitcode.Failed ||
		!strings.Contains(stderr, "2 of 8 runs failed") {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	if got := summary(t, filepath.Join(killed, "studies/tiny")); !reflect.DeepEqual(got, want) {
		t.Errorf("the summary differs:\n%v\nwant\n%v", got, want)
	}
	for path, before := range finished {
		if info, err := os.Stat(path); err != nil || info.ModTime() != before {
			t.Errorf("%s was finished and was run again (%v)", path, err)
		}
	}
}

func TestStudyCommandLine(t *testing.T) {
	dir := t.TempDir()
	study := tinyStudy(t, dir)
	code, stdout, stderr := runIn(t, dir, "sweep", study, "--dry-run", "--seeds", "1", "--slots", "1", "--values",
		"0.5,nofilter,0.25")
	if code != exitcode.Done || !strings.Contains(stderr, "5 runs on 1 slots") || !strings.Contains(stderr,
		"cannot start: memory is unknown: the policy: nowhere has no config.json") {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	for _, want := range []string{"0.5 ", "0.25 ", "nofilter ", "studies/tiny/runs/cannot_start/seed_1", "unknown",
		"GiB"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the list lacks %q:\n%s", want, stdout)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "studies")); !os.IsNotExist(err) {
		t.Error("a dry run wrote something")
	}
	for args, want := range map[string]string{
		"sweep":                           "gyre sweep takes STUDY",
		"sweep study.toml extra":          "expected key=value",
		"sweep study.toml --slots 0":      "--slots is 0",
		"sweep study.toml study.lenght=1": "study.lenght: unknown key",
		"sweep study.toml study.runs=elsewhere/seed_{seed}": "a path with {condition} in it",
		"sweep study.toml axes.0.lines=[\"one\"]":           "axes.0.lines: 1 lines for 2 values",
		"sweep study.toml --dry-run run.steps=many":         "8 of 8 runs cannot start",
		"sweep none.toml":                 "none.toml",
		"sweep study.toml filter.value=1": "the study varies filter.value",
	} {
		if code, _, stderr := runIn(t, dir, strings.Fields(args)...); code != exitcode.Usage ||
			!strings.Contains(stderr, want) {
			t.Errorf("gyre %s: exit code %d, %s; want %q", args, code, stderr, want)
		}
	}
}

// A study none of whose runs can start, here for want of a model, says so at once.
func TestStudyWithoutAModel(t *testing.T) {
	dir := t.TempDir()
	study := tinyStudy(t, dir)
	for _, args := range [][]string{{"sweep", study}, {"search", study, "--seeds", "1"}} {
		code, _, stderr := runIn(t, dir, append(args, "model.path=nowhere")...)
		if code != exitcode.Failed || !strings.Contains(stderr, "no run of the study can start") ||
			!strings.Contains(stderr, "nowhere has no config.json") {
			t.Errorf("gyre %s: exit code %d\n%s", args[0], code, stderr)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "studies")); !os.IsNotExist(err) {
		t.Error("the refused study left a folder")
	}
}

// Stages: the second starts from the better condition of the first.
func TestStagedStudy(t *testing.T) {
	dir := t.TempDir()
	studyOf(t, dir, `
seeds = 1
set = ["run.steps=1", "run.validate_every=1", "analysis.enabled=false"]
[[axes]]
key = "filter.include_zero"
values = [true, false]
[[axes]]
key = "actor.lr"
values = [1e-6, 1e-5]
stage = 2
`)
	mustIn(t, dir, "sweep", "study.toml")
	rows := summary(t, filepath.Join(dir, "studies/tiny"))
	best, score := "", -1.0
	for _, row := range rows[:2] {
		if v := row["mean_last_success"].(float64); v > score {
			best, score = strings.TrimPrefix(row["condition"].(string), "stage1,"), v
		}
	}
	var state struct {
		Runs []struct{ Overrides []string }
	}
	if err := json.Unmarshal(readFile(t, filepath.Join(dir, "studies/tiny/state.json")), &state); err != nil {
		t.Fatal(err)
	}
	if len(state.Runs) != 4 {
		t.Fatalf("%d runs, want two of each stage", len(state.Runs))
	}
	for _, r := range state.Runs[2:] {
		if text := fmt.Sprint(r.Overrides); !strings.Contains(text, "filter.include_zero="+best) ||
			!strings.Contains(text, "actor.lr=") {
			t.Errorf("a run of the second stage has %s, want filter.include_zero=%s", text, best)
		}
	}
}

// The commands of the seed on intervention sweeps: options, defaults, settings and places of outputs.
func TestSweepScripts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	touch(t, filepath.Join(dir, "models/Qwen2.5-3B/config.json"))
	withGPUs(t, dir, "case $1 in -L) for i in 0 1 2 3 4 5 6 7; do echo \"GPU $i: NVIDIA H100 80GB\"; done ;; *) echo "+
		"80000 ;; esac\n")
	for _, c := range []struct {
		script, args string
		want         []string
	}{
		{"run_top_p_sweep.sh", "", []string{"/configs/studies/top_p_sweep.toml>", "<--name><top_p_sweep_Qwen2.5-3B>",
			"<--values><1.0,0.98,0.95,0.9,0.8,0.6,0.4,nofilter>",
			"<--labels><10,098,095,09,08,06,04,nofilter>",
			"<--logs><logs/top_p_sweep_Qwen2.5-3B/{condition}/sokoban_top_p_{condition}-Qwen2.5-3B.log>",
			"<--summary><logs/top_p_sweep_Qwen2.5-3B.log>",
			"<study.runs=model_saving/top_p_sweep_Qwen2.5-3B/{condition}/sokoban_top_p_{condition}-Qwen2.5-3B>",
			"<--gpus><0,1,2,3,4,5,6,7><--gpus-per-run><1>", "<--slots><8>",
			"<run.steps=400>", "<run.project=ragen_release_top_p_sweep>", "<run.save_every=-1>",
			"<model.path=models/Qwen2.5-3B>", "<engine.kv_mib=40000>"}},
		{"run_top_p_sweep.sh", "--rollout_filter_value 0.9,nofilter --gpus-per-exp 4 --gpus 0,1,2,3,4,5,6,7",
			[]string{"<--values><0.9,nofilter>", "<--gpus-per-run><4>", "<--slots><2>"}},
		{"run_kl_sweep.sh", "", []string{"<--values><0,0.001,0.003,0.01,0.03,0.1>",
			"<--logs><logs/kl_sweep_Qwen2.5-3B/nofilter/{condition}/sokoban_kl_sweep_nofilter_{condition}-Qwen2.5-3B.log>", "<filter.include_zero=true>"}},
		{"run_kl_sweep.sh", "--kl-values 0,0.01 --rollout_filter_include_zero False --gpus-per-exp 4 --gpus " +
			"0,1,2,3,4,5,6,7", []string{"<--values><0,0.01>", "<--labels><0,001>",
			"<study.runs=model_saving/kl_sweep_Qwen2.5-3B/filter_zero/{condition}/sokoban_kl_sweep_filter_zero_{condition}-Qwen2.5-3B>", "<--name><kl_sweep_Qwen2.5-3B_filter_zero>", "<filter.include_zero=false>"}},
		{"run_entropy_sweep.sh", "", []string{"/configs/studies/entropy_sweep.toml>",
			"<--values><0,0.001,0.003,0.01,0.03,0.1>", "<filter.include_zero=true>"}},
		{"run_entropy_sweep.sh", "--entropy-values 0,0.01 --rollout_filter_include_zero False --gpus-per-exp 4 " +
			"--gpus 0,1,2,3,4,5,6,7 --steps 5 --save-freq 2 --ray-num-cpus 1 --gpu-memory-utilization 0.25",
			[]string{"<--logs><logs/entropy_sweep_Qwen2.5-3B/filter_zero/{condition}/sokoban_entropy_sweep_filter_zero_{condition}-Qwen2.5-3B.log>", "<run.steps=5>", "<run.save_every=2>", "<--threads><1>", "<engine.kv_mib=20000>"}},
		{"run_main_table_diff_algo.sh", "--tasks sokoban,countdown --algos PPO,GRPO --filters all --cooldown 30",
			[]string{"--cooldown 30 has no effect", "<--name><diff_algo_sokoban_Qwen2.5-3B>", `<axes.0.values=["PPO","GRPO"]>`,
				`<axes.1.values=["filter","nofilter"]>`, "<envs.0.tag=CoordSokoban>", "<--seeds><3>",
				"<--name><diff_algo_countdown_Qwen2.5-3B>", "<envs.0.max_turns=1>", "<engine.kv_mib=24000>",
				"<model.path=models/Qwen2.5-3B>", "<--gpus><0,1,2,3,4,5,6,7><--gpus-per-run><1>"}},
		{"run_main_table_diff_size.sh", "--dry-run --tasks frozenlake --filters filter --gpus 0,1 --gpus-per-exp 2",
			[]string{"<--name><diff_size_PPO_frozenlake>", "<run.project=ragen_main_table_diff_size>", `<axes.0.values=["models/Qwen2.5-0.5B",`,
				`<axes.0.labels=["0.5B","1.5B","3B","7B"]>`, `<axes.1.values=["filter"]>`, "<--gpus-per-run><2>"}},
		{"run_main_table_diff_model.sh", "--dry-run --tasks sokoban --models Org/Name,Qwen2.5-3B",
			[]string{`<axes.0.values=["models/Name","models/Qwen2.5-3B"]>`, `<axes.0.labels=["Org__Name","Qwen2.5-3B"]>`}},
		{"run_frozen_lake_slipper_rate_sweep.sh", "--slipper-rate 100,0.5,1%,0 --filter-top-p 0.8", []string{
			"<axes.0.values=[0.000000,0.500000,0.990000,1.000000]>", `<axes.0.labels=["slip100","slip50","slip1","slip0"]>`,
			`filter = ["filter.value=0.8", "filter.include_zero=false"]`}},
	} {
		code, output := script(t, dir, `printf '<%s>' "$@"; echo`, "runs/"+strings.TrimPrefix(c.script, "runs/"),
			strings.Fields(c.args)...)
		for _, want := range c.want {
			if code != 0 || !strings.Contains(output, want) {
				t.Errorf("%s %s: exit code %d, does not say %s:\n%s", c.script, c.args, code, want, output)
			}
		}
	}
	for args, want := range map[string]string{
		"run_kl_sweep.sh --kl-values":                              "no value: --kl-values",
		"run_kl_sweep.sh --entropy-values 0":                       "unknown option --entropy-values",
		"run_kl_sweep.sh --rollout_filter_include_zero perhaps":    "expected True or False",
		"run_top_p_sweep.sh --gpus-per-exp 3":                      "does not divide the 8 devices",
		"run_top_p_sweep.sh --gpus 9":                              "names GPU 9",
		"run_top_p_sweep.sh --model models/none":                   "no Hugging Face directory",
		"run_main_table_diff_algo.sh --tasks sokoban,chess":        "--tasks names 'chess'",
		"run_main_table_diff_algo.sh --algos ppo":                  "--algos names 'ppo'",
		"run_main_table_diff_size.sh":                              "models/Qwen2.5-0.5B is no Hugging Face directory",
		"run_frozen_lake_slipper_rate_sweep.sh --slipper-rate 101": "expected at most 100",
	} {
		words := strings.Fields(args)
		if code, output := script(t, dir, "echo never", "runs/"+words[0], words[1:]...); code != 2 ||
			!strings.Contains(output, want) {
			t.Errorf("%s: exit code %d, want %q:\n%s", args, code, want, output)
		}
	}
}

// The studies of RAGEN's main tables and of slippery ice can run: every condition is planned, in pairs of seeds.
func TestMainTables(t *testing.T) {
	dir := t.TempDir()
	for name, conditions := range map[string]int{"main_table_diff_algo": 8, "main_table_diff_model": 2,
		"frozenlake_slip": 14} {
		study, err := filepath.Abs("../../configs/studies/" + name + ".toml")
		if err != nil {
			t.Fatal(err)
		}
		words := []string{"sweep", study, "--dry-run", "--seeds", "2", "rollout.max_length=2000"}
		if conditions == 2 {
			words = append(words, `axes.0.values=["`+tinyPolicy(t)+`"]`, `axes.0.labels=["tiny"]`)
		} else {
			words = append(words, "model.path="+tinyPolicy(t))
		}
		said := mustIn(t, dir, words...)
		if planned := strings.Count(said, " pending "); planned != 2*conditions || strings.Contains(said, "unknown") {
			t.Errorf("%s: %d runs are planned, want %d:\n%s", name, planned, 2*conditions, said)
		}
	}
	study, err := filepath.Abs("../../configs/studies/main_table_diff_algo.toml")
	if err != nil {
		t.Fatal(err)
	}
	mustIn(t, dir, "sweep", study, "--seeds", "2", `axes.0.values=["PPO","DAPO"]`, `axes.1.values=["filter"]`,
		"model.path="+tinyPolicy(t), "envs.0.tag=sokoban", "validation.envs.0.tag=sokoban", "rollout.prompt=compact",
		"rollout.think=false", "rollout.max_tokens=4", "rollout.max_length=300", "run.steps=1", "envs.0.groups=2",
		"envs.0.group_size=2", "actor.mini_batch=4", "critic.mini_batch=4", "validation.envs.0.groups=2",
		"run.loggers=[\"jsonl\"]")
	var list []map[string]any
	if err := json.Unmarshal(readFile(t, filepath.Join(dir, "studies/main_table_diff_algo/summary.json")), &list); err != nil {
		t.Fatal(err)
	}
	paired := 0
	for _, row := range list { // the two are one configuration, on the same seeds
		if row["metric"] == "entropy" && row["difference"] == 0.0 && row["pairs"] == 2.0 && row["low"] == nil {
			paired++
		}
	}
	if paired != 1 {
		t.Errorf("PPO and DAPO are not compared in pairs: %v", list)
	}
}

// The sweeps of the seed from end to end with a small policy: logs, results, checkpoints and summary lie where RAGEN's
// lie and look as they look.
func TestSweepScriptsRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	withGPUs(t, dir, "exit 1\n")
	model := filepath.Base(tinyPolicy(t))
	times := `train_time=\d+\.\d\ds \| eval_time=\d+\.\d\ds \| total_time=\d+\.\d\ds \| wall_time=\d+s \| gpu=1xCPU \| `
	for _, c := range []struct {
		script, values, more, places, name string
		lines                              []string // a label, what its line begins with, how it ends
	}{
		{"top_p", "--rollout_filter_value 1.0,nofilter",
			"run.steps=3 run.validate_every=1 early_stop.low_success=1 early_stop.low_success_count=2",
			"top_p_sweep_" + model, "sokoban_top_p_",
			// no group has spread: no step, no validation
			[]string{"10", "value=1.0 | include_zero=False | filter_value=1.0", "status=success",
				"nofilter", "value=nofilter | include_zero=True | filter_value=1.0",
				`status=stopped_early \| early_stop=\w+ \| steps=2`}},
		{"kl", "--kl-values 0,0.1 --rollout_filter_include_zero False", "", "kl_sweep_" + model + "/filter_zero",
			"sokoban_kl_sweep_filter_zero_",
			[]string{"0", "kl=0 | filter=filter_zero | include_zero=False", "status=success", "01",
				"kl=0.1 | filter=filter_zero | include_zero=False", "status=success"}},
		{"entropy", "--entropy-values 0.003,often", "", "entropy_sweep_" + model + "/nofilter",
			"sokoban_entropy_sweep_nofilter_",
			[]string{"0003", "entropy=0.003 | filter=nofilter | include_zero=True", "status=success", "often",
				"entropy=often | filter=nofilter | include_zero=True", "status=fail"}},
	} {
		args := append(strings.Fields(c.values), "--preset", "small", "--model", tinyPolicy(t), "--steps", "1",
			"--save-freq", "1", "--ray-num-cpus", "1",
			"validation.envs.0.groups=2", "rollout.max_tokens=4", "envs.0.max_turns=1", "actor.lr=1e-3")
		code, output := script(t, dir, "GYRE_TEST_COMMAND=1 exec '"+binary+"' \"$@\"", "runs/run_"+c.script+"_sweep.sh",
			append(args, strings.Fields(c.more)...)...)
		if want := map[bool]int{true: exitcode.Failed}[c.script == "entropy"]; code != want {
			t.Fatalf("%s: exit code %d, want %d\n%s", c.script, code, want, output)
		}
		log := string(readFile(t, filepath.Join(dir, "logs", c.script+"_sweep_"+model+".log")))
		title := map[string]string{"top_p": "Top-p", "kl": "KL", "entropy": "Entropy"}[c.script]
		if !strings.HasPrefix(log, "=== "+title+" Sweep: ") ||
			!strings.Contains(log, "\n\n=== "+title+" Sweep Summary ===\nproject=ragen_release_"+c.script+"_sweep | ") {
			t.Errorf("%s:\n%s", c.script, log)
		}
		for i := 0; i < len(c.lines); i += 3 {
			label, begin, end := c.lines[i], c.lines[i+1], c.lines[i+2]
			line := regexp.MustCompile("(?m)^" + regexp.QuoteMeta(begin+" | ") + times + end + "$")
			at := filepath.Join(c.places, label, c.name+label+"-"+model)
			if end == "status=fail" {
				line = regexp.MustCompile("(?m)^" + regexp.QuoteMeta(begin) +
					` \| train_time=N/A .* \| status=fail\n  error: .*expected a number`)
			} else if saved, _ := filepath.Glob(filepath.Join(dir, "model_saving", at,
				"global_step_*/manifest.json")); len(saved) == 0 {
				t.Errorf("model_saving/%s has no checkpoint", at)
			}
			if found := line.FindAllString(log, -1); len(found) != 2 { // as it ended, and in the summary
				t.Errorf("the summary log has %q for %s:\n%s", found, line, log)
			}
			if result := string(readFile(t, filepath.Join(dir, "logs", at+".result"))); !line.MatchString(result) {
				t.Errorf("the result of %s: %s", label, result)
			}
			if said := string(readFile(t, filepath.Join(dir, "logs", at+".log"))); end == "status=success" &&
				!strings.Contains(said, "step 1/") {
				t.Errorf("the log of %s:\n%s", label, said)
			}
		}
	}
}
