package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gyre/internal/atomicfile"
)

// bySeedScripts stands in for gyre when scripts call it: the same command with what makes it small. Of ranks, the first
// call of a script has two and a later one has one. A run of the 3B and larger models is a dry run.
const bySeedScripts = `
small="model.device=cpu run.steps=1 rollout.max_tokens=2 rollout.prompt=compact rollout.think=false rollout.max_length=400 envs.0.groups=2 envs.0.max_turns=1
 actor.mini_batch=2 critic.mini_batch=2 filter.strategy=none validation.envs.0.groups=2 validation.envs.0.max_turns=1 run.threads=1"
args=("$@")
for i in "${!args[@]}"; do
  [ "${args[i]}" != --ranks ] || args[i+1]=$GYRE_TEST_RANK_COUNT
done
case $1 in
  train)
    case $2 in
      log/configs/*) grep -qE '^path = ".*-(1\.5|3|7)B' "$2" && small+=" --dry-run" ;;
      *) small+=" analysis.groups=2 analysis.group_size=2 envs.0.group_size=2" ;;
    esac ;;
  analyze) small+=" analysis.groups=2 analysis.group_size=2 envs.0.group_size=2" ;;
  sft) small+=" sft.episodes=8 sft.validation_episodes=2 sft.epochs=1 sft.batch=4" ;;
  *) small='' ;;
esac
GYRE_TEST_COMMAND=1 exec "$GYRE_TEST_BINARY" "${args[@]}" $small`

// Every command line of the experiment documents runs as it stands there, and leaves its outputs where the documents
// say.
func TestCommandsOfTheDocuments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	stub := filepath.Join(t.TempDir(), "gyre")
	if err := os.WriteFile(stub, []byte("#!/usr/bin/env bash"+bySeedScripts+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	link := func(target, name string) { t.Helper(); linkTo(t, target, filepath.Join(dir, name)) }
	if err := os.Mkdir(filepath.Join(dir, "done"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"train.sh", "scripts"} {
		link(filepath.Join(root, name), name)
	}
	for _, size := range []string{"-3B", "-0.5B-Instruct", "-1.5B-Instruct", "-3B-Instruct", "-7B-Instruct"} {
		link(tinyPolicy(t), "models/Qwen2.5"+size)
	}
	withGPUs(t, dir, "case $1 in -L) for i in 0 1 2 3 4 5 6 7; do echo \"GPU $i: NVIDIA H100 80GB\"; done ;; *) echo "+
		"80000 ;; esac\n")
	script, ran := "", map[string]int{}
	bash := func(line string) string {
		t.Helper()
		ranks := 1
		if ran[script] == 1 {
			ranks = 2
		}
		cmd := exec.Command("bash", "-c", "set -o pipefail; mkdir -p ./log/terminal; "+line)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), scriptPath(dir), "GYRE="+stub, "GYRE_TEST_BINARY="+binary, "GYRE_THREADS=1",
			"NO_COLOR=1", fmt.Sprint("GYRE_TEST_RANK_COUNT=", ranks))
		out, err := cmd.CombinedOutput()
		if err != nil {
			logs, _ := filepath.Glob(filepath.Join(dir, "log/terminal/*.log"))
			for _, log := range logs {
				if strings.Contains(line, filepath.Base(log)) {
					out = append(out, readFile(t, log)...)
				}
			}
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		return string(out)
	}
	there := func(line string, patterns ...string) {
		t.Helper()
		for _, pattern := range patterns {
			if found, _ := filepath.Glob(filepath.Join(dir, pattern)); len(found) == 0 {
				t.Errorf("%s: there is no %s", line, pattern)
			}
		}
	}
	word := func(line, key string) string {
		_, value, _ := strings.Cut(line, key+"=")
		value, _, _ = strings.Cut(value, " ")
		return value
	}
	redirection := regexp.MustCompile(`(?:>|tee) (\./log/terminal/\S+\.log)$`)
	for _, line := range strings.Split(string(readFile(t, "testdata/seed_commands.txt")), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		script = regexp.MustCompile(`[\w/]+\.(sh|py)`).FindString(line)
		ran[script]++
		switch script {
		case "scripts/runs/run_sokoban_ppo_filter_grad_analysis.sh":
			bash(line)
			algo := "PPO"
			if strings.Contains(line, "GRPO") {
				algo = "GRPO"
			}
			name := "sokoban-" + algo + "-filter-topp09-Qwen2.5-3B-train8x16-analysis128x16-grad-every50"
			saved := "model_saving/gradient_analysis/sokoban/" + algo + "/filter/" + name
			there(line, "logs/gradient_analysis_sokoban_Qwen2.5-3B/"+name+".log", saved+"/metrics.jsonl",
				saved+"/global_step_1/manifest.json")
			// The next command has the same name, and would continue this run.
			if err := os.Rename(filepath.Join(dir, saved),
				filepath.Join(dir, "done", fmt.Sprint(ran[script]))); err != nil {
				t.Fatal(err)
			}
		case "scripts/runs/run_sokoban_ppo_filter_grad_analysis_probe_ckpt.sh":
			name := "sokoban-PPO-filter-topp09-Qwen2.5-3B-train8x16-analysis128x16-grad-every50"
			run := filepath.Join(dir, "model_saving/gradient_analysis/sokoban/PPO/filter", name)
			step := "101"
			if strings.Contains(line, "--checkpoint-step 51") {
				step = "51"
			}
			if err := os.MkdirAll(run, 0o755); err != nil {
				t.Fatal(err)
			}
			if at := filepath.Join(run, "global_step_"+step); !atomicfile.Exists(at) {
				if err := os.CopyFS(at, os.DirFS(filepath.Join(dir, "done/1/global_step_1"))); err != nil {
					t.Fatal(err)
				}
			}
			bash(strings.ReplaceAll(line, "<exp_name>", name))
			validated := "noval"
			if strings.Contains(line, "--with-val") {
				validated = "withval"
			}
			probe := "sokoban-PPO-filter-topp09-Qwen2.5-3B-probe-ckpt" + step + "-" + validated + "-kl_and_entropy"
			there(line, "logs/gradient_analysis_probe_sokoban_Qwen2.5-3B/"+probe+".log",
				"model_saving/gradient_analysis_probe/sokoban/PPO/filter/"+probe+"/metrics.jsonl")
			if err := os.RemoveAll(filepath.Join(dir, "model_saving")); err != nil {
				t.Fatal(err)
			}
		case "scripts/runs/run_top_p_sweep.sh", "scripts/runs/run_kl_sweep.sh", "scripts/runs/run_entropy_sweep.sh":
			out := bash(line + " --dry-run")
			values := map[string]string{"top_p": "10,098,095,09,08,06,04,nofilter", "kl": "0,0001,0003,001,003,01",
				"entropy": "0,0001,0003,001,003,01"}[strings.Split(filepath.Base(script), "_sweep")[0][len("run_"):]]
			if strings.Contains(line, "-values ") {
				values = "0,001"
			} else if strings.Contains(line, "0.9,nofilter") {
				values = "09,nofilter"
			}
			for _, label := range strings.Split(values, ",") {
				if !regexp.MustCompile(`(?m)^`+label+` +1 +pending +400 `).MatchString(out) ||
					strings.Count(out, "pending") != strings.Count(values, ",")+1 {
					t.Errorf("%s: %s is not planned once with 400 steps:\n%s", line, label, out)
				}
			}
		case "scripts/hyperparam_search.sh":
			if out, want := bash(line+" --dry_run"), []int{9, 4, 6, 9}[ran[script]-1]; strings.Count(out,
				"pending") != want {
				t.Errorf("%s: %d runs are not planned:\n%s", line, want, out)
			}
		case "train.sh":
			bash(line)
			log := redirection.FindStringSubmatch(line)[1]
			if text := string(readFile(t, filepath.Join(dir, log))); !strings.Contains(text, "[run]") {
				t.Errorf("%s: the log does not say what the words become:\n%s", line, text)
			}
			switch {
			case strings.Contains(line, "rl_or_sft=sft"):
				folder := word(line, "sft.output_dir")
				there(line, folder+"/demonstrations/train.parquet", folder+"/demonstrations/test.jsonl",
					folder+"/best/actor/config.json")
			case strings.Contains(line, "-0.5B-"):
				there(line, "runs/"+word(line, "model.experiment_name")+"/metrics.jsonl")
			}
		case "train.py":
			_, words, _ := strings.Cut(strings.ReplaceAll(line, "train.py ...", "train.py --config-name _2_sokoban"),
				"train.py ")
			bash("\"$GYRE\" config translate " + words + " -o run.toml")
			if !strings.Contains(line, "resume_from_path") {
				bash("\"$GYRE\" train run.toml run.name=direct rollout.replies=sampled model.path=models/Qwen2.5-3B")
				there(line, "runs/direct/metrics.jsonl")
				continue
			}
			// A hundred small steps, and the step after them, which analyses and ends.
			bash("GYRE_TEST_COMMAND=1 \"$GYRE_TEST_BINARY\" train run.toml run.output=runs run.name=long " +
				"run.steps=100 run.save_every=100 analysis.enabled=false analysis.exit_after=false " + seedSmall)
			bash("GYRE_TEST_COMMAND=1 \"$GYRE_TEST_BINARY\" train run.toml --resume-from runs/long/global_step_100 " +
				seedSmall)
			steps := steadyMetrics(t, filepath.Join(dir, word(line, "trainer.default_local_dir"), "metrics.jsonl"))
			if values := steps[101]; len(steps) != 1 || values["grad_norm/all/task"] == nil ||
				values["trainer/exited_after_gradient_analysis"] != 1.0 || values["actor/pg_loss"] != nil {
				t.Errorf("%s: logged %v", line, steps)
			}
		case "gradient_analysis/plot_gradient_analysis.py":
			history := filepath.Join(dir, "wandb/history.jsonl")
			if !atomicfile.Exists(history) {
				analysed := string(readFile(t, filepath.Join(dir, "done/1/metrics.jsonl")))
				row := analysed[strings.LastIndex(analysed[:len(analysed)-1], "\n")+1:]
				text := ""
				for _, step := range []string{"1", "11", "21"} {
					text += strings.Replace(strings.Replace(row, `"step":1,`, `"_step":`+step+`,`, 1), `"schema":1,`,
						"", 1)
				}
				if err := os.MkdirAll(filepath.Dir(history), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(history, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			_, words, _ := strings.Cut(line, "<run_id>")
			out := bash("\"$GYRE\" plot steps wandb/history.jsonl --dpi 40" + words)
			switch {
			case strings.Contains(line, "--list-steps"):
				if out != "1\n11\n21\n" {
					t.Errorf("%s: %q", line, out)
				}
			case strings.Contains(line, "--output-dir"):
				there(line, "gradient_analysis_outputs/my_run_step1/gradient_analysis_summary_step_1.png")
			default:
				there(line, "gradient_analysis_outputs/*/gradient_analysis_metrics_step_1.json",
					"gradient_analysis_outputs/*/gradient_analysis_plots_step_1.png")
			}
		case "gradient_analysis/plot_icml_steps.py":
			_, words, _ := strings.Cut(line, script)
			words = regexp.MustCompile(`/path/to/step\d+`).ReplaceAllString(words,
				"gradient_analysis_outputs/my_run_step1")
			bash("\"$GYRE\" plot steps --dpi 40" + words)
			there(line, "gradient_analysis_outputs/ppo_step0_20_40.png")
		default:
			t.Errorf("nothing runs %s", line)
		}
	}
	if len(ran) != 10 || ran["train.sh"] != 18 {
		t.Errorf("ran %v", ran)
	}
}

// seedSmall makes the guide's long command small, but for its steps.
const seedSmall = "model.path=models/Qwen2.5-3B model.device=cpu rollout.max_tokens=2 rollout.prompt=compact " +
	"rollout.think=false rollout.max_length=400 envs.0.groups=2 envs.0.group_size=2 envs.0.max_turns=1 " +
	"actor.mini_batch=2 critic.mini_batch=2 filter.strategy=none run.threads=1 run.save_rollouts=none"
