package translate

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"

	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
)

func translated(t *testing.T, text string) Result {
	t.Helper()
	r, err := Words(strings.Fields(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return r
}

// Where nothing is said, the document resolves to Gyre's own defaults, and RAGEN's project.
func TestDefaultsAreShared(t *testing.T) {
	r := translated(t, "--config-name _2_sokoban")
	want, err := config.Parse("x", []byte("model.path = \"models/Qwen2.5-3B-Instruct\"\nrun.name=\"sokoban-main\"\nrun.project=\"ragen\"\n[[envs]]\ntag = \"CoordSokoban\"\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(r.Config, want) {
		t.Errorf("got\n%s\n%+v, want\n%+v", r.Document, r.Config, want)
	}
}

// Every command of the base experiments, at every size that stands there.
func TestBaseExperiments(t *testing.T) {
	for _, env := range []string{"two_armed_bandit", "sokoban", "frozenlake"} {
		shape := "training.micro_batch_size=4 training.train_batch_size=4 training.ppo_batch_size=32 " +
			"training.max_turns=5 training.n_rollout=8"
		if env == "two_armed_bandit" {
			shape = "training.micro_batch_size=4 training.train_batch_size=32 training.ppo_batch_size=32 " +
				"training.max_turns=1 training.n_rollout=1"
		}
		for _, size := range []string{"0.5B", "1.5B", "3B", "7B"} {
			model := "Qwen/Qwen2.5-" + size + "-Instruct"
			for kind, words := range map[string]string{
				"main": "model.base_model=" + model + " model.experiment_name=a_main " + shape +
					" optimization.kl_coef=0.001 optimization.adv_estimator=brpo system.n_gpus=2",
				"no_think": "model.base_model=" + model + " model.experiment_name=a " + shape +
					" training.no_think_rl=True optimization.kl_coef=0.001 optimization.adv_estimator=brpo",
				"sft": "rl_or_sft=sft sft.output_dir=models/sft/" + env + "/x sft.training.base_model=" + model + " " +
					"sft.training.experiment_name=a sft.data_generation.train_size=2000 " +
					"sft.data_generation.test_size=200 sft.training.micro_batch_size=4 sft.training.epochs=5 " +
					"training.val_batch_size=10 training.val_data_num= training.n_rollout=1 " +
					"optimization.adv_estimator=brpo",
			} {
				r, err := Words(append([]string{"--train-sh", env}, strings.Fields(words)...))
				if err != nil {
					t.Errorf("%s %s: %v", env, words, err)
				} else if r.Config.Model.Path != "models/Qwen2.5-"+size+"-Instruct" ||
					(kind == "sft") != (r.Config.SFT.Episodes == 2000) ||
					(kind == "no_think") != (r.Config.Rollout.Replies == "action") {
					t.Errorf("%s %s becomes\n%s", env, words, r.Document)
				}
			}
		}
	}
}

// What verl's words become is what scripts/run_grpo.sh makes of the same words.
func TestVerlIsWhatTheScriptRuns(t *testing.T) {
	dir := t.TempDir()
	train, test, stub, said := filepath.Join(dir, "train.jsonl"), filepath.Join(dir, "test.jsonl"),
		filepath.Join(dir, "gyre"), filepath.Join(dir, "said")
	row := `{"prompt": [{"role": "user", "content": "1 + 1?"}], "reward_model": {"ground_truth": "2"}}` + "\n"
	for path, text := range map[string]string{train: strings.Repeat(row, 470), test: strings.Repeat(row, 30),
		stub: "#!/bin/sh\nprintf '%s\\n' \"$@\" >" + said + "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const grpo = "algorithm.adv_estimator=grpo data.train_batch_size=16 data.max_prompt_length=512 " +
		"data.max_response_length=1024 actor_rollout_ref.model.path=models/M actor_rollout_ref.actor.optim.lr=2e-6 " +
		"actor_rollout_ref.model.enable_gradient_checkpointing=True actor_rollout_ref.actor.ppo_mini_batch_size=8 " +
		"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 actor_rollout_ref.actor.use_kl_loss=True " +
		"actor_rollout_ref.actor.kl_loss_coef=0.002 actor_rollout_ref.rollout.name=vllm " +
		"actor_rollout_ref.rollout.tensor_model_parallel_size=2 actor_rollout_ref.rollout.n=4 trainer.total_epochs=3 " +
		"trainer.save_freq=20 trainer.test_freq=5 custom_reward_function.path=utils/rewards.py custom_reward_function.name=compute_correctness_score"
	words := append(strings.Fields(grpo), "data.train_files="+train, "data.val_files="+test)
	script := exec.Command("bash", append([]string{"../../../scripts/run_grpo.sh"}, words...)...)
	script.Env = append(os.Environ(), "GYRE="+stub)
	if out, err := script.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	arguments, err := os.ReadFile(said)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(arguments)), "\n")
	run, err := config.Load(lines[1], slices.DeleteFunc(lines[2:],
		func(w string) bool { return strings.HasPrefix(w, "--") || w == "8" }))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Words(append(strings.Fields("python3 -m verl.trainer.main_ppo"), words...))
	if err != nil {
		t.Fatal(err)
	}
	// The script measures the components besides, names the run, keeps more checkpoints and takes verl's project for
	// none.
	run.Components, run.Rewards, run.Run.Name, run.Checkpoint.Keep, run.Run.Project = r.Config.Components,
		r.Config.Rewards, r.Config.Run.Name, r.Config.Checkpoint.Keep, r.Config.Run.Project
	run.Validation.Tracking = false
	texts := [2][]byte{}
	for i, c := range []*config.Config{r.Config, run} {
		if texts[i], err = config.Resolved(c); err != nil {
			t.Fatal(err)
		}
	}
	if differ, err := config.Compare(texts[0], texts[1]); err != nil || len(differ) > 0 {
		t.Errorf("the script's run differs (%v):\n%v", err, differ)
	}
	if got := r.Config.Rewards; len(got) != 1 || !strings.HasSuffix(show(got[0].Options["command"]),
		"scripts/reward_command.py,utils/rewards.py,compute_correctness_score]") {
		t.Errorf("the reward is %+v", got)
	}
}

// What the tables promise exists, every key stands in one row, and every task can be translated or says why not.
func TestTables(t *testing.T) {
	resolved, err := config.Resolved(translated(t, "--config-name _2_sokoban").Config)
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if _, err := toml.Decode(string(resolved), &tree); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, chapter := range []string{"Keys of RAGEN and verl", "Keys of the first RAGEN"} {
		seen := map[string]bool{}
		for _, r := range table(chapter) {
			for _, key := range r.keys {
				if seen[key] {
					t.Errorf("%s stands in two rows", key)
				}
				seen[key], known[key] = true, true
			}
			if r.ours == nil && r.how == "" {
				t.Errorf("%s: no counterpart and no reason", r.keys)
			}
			for _, ours := range r.ours {
				name, key, dotted := strings.Cut(ours, ".")
				if !dotted || strings.ContainsAny(ours, " *[") {
					continue
				}
				inner, _ := tree[name].(map[string]any)
				if _, ok := inner[key]; !ok {
					t.Errorf("%s becomes %s, which is no key", r.keys, ours)
				}
			}
		}
		if len(seen) < 40 {
			t.Errorf("%s: %d keys were read from the page", chapter, len(seen))
		}
	}
	for key := range conversions {
		if !known[key] {
			t.Errorf("a conversion of %s, which no table has", key)
		}
	}
	for name := range tasks() {
		_, err := Words([]string{"--config-name", name})
		if refused := tasks()[name].how != ""; (err != nil) != refused {
			t.Errorf("--config-name %s: %v", name, err)
		}
	}
}

func FuzzWords(f *testing.F) {
	f.Add("trainer.save_freq=[1] algorithm.adv_estimator={a: 1} model_path='x\"\\x00'")
	f.Add("--config-name _2_sokoban trainer.resume_mode=resume_path trainer.resume_from_path=/a/global_step_100")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "--yaml") {
			return
		}
		r, err := Words(strings.Fields(text))
		if err == nil && r.Config == nil {
			t.Fatal("no configuration and no error")
		}
	})
}

// A document whose data files are still to be fetched is written, with a note that says how.
func TestMissingDataIsANote(t *testing.T) {
	t.Chdir(t.TempDir())
	result, err := Words([]string{"--config-name", "_5_metamathqa"}, experiment.CheckEnvironments(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	text, notes := string(result.Document), strings.Join(result.Notes, "\n")
	if !strings.Contains(text, `problems = "data/metamathqa/train.jsonl"`) || !strings.Contains(notes,
		"gyre data prepare metamathqa") {
		t.Errorf("document and notes:\n%s\n%s", text, notes)
	}
}

// What cannot be translated leaves the rest of the document, which says what it lacks.
func TestIncompleteDocuments(t *testing.T) {
	r, err := Words(strings.Fields("python3 -m verl.trainer.main_ppo --config-name=foo algorithm.adv_estimator=grpo " +
		"actor_rollout_ref.rollout.n=many trainer.unheard_of=1"))
	if err == nil || r.Config != nil {
		t.Fatalf("error %v, configuration %v", err, r.Config)
	}
	text := string(r.Text(err))
	for _, want := range []string{"advantage = \"grpo\"", "\n# To be mended before this can run:\n",
		"\n# --config-name foo is not a task configuration of RAGEN\n",
		"\n# actor_rollout_ref.rollout.n is many, expected a number\n", "\n# trainer.unheard_of=1: unknown to this translation"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	var read map[string]any
	if _, err := toml.Decode(text, &read); err != nil {
		t.Errorf("not TOML: %v\n%s", err, text)
	}
}
