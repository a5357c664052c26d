package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	trainScript = "runs/run_sokoban_ppo_filter_grad_analysis.sh"
	probeScript = "run_sokoban_ppo_filter_grad_analysis_probe_ckpt.sh" // both lie in runs/ and answer in either place
)

// script runs one of the experiment scripts in a folder, with a stand-in for the gyre binary.
func script(t *testing.T, dir, gyre, name string, args ...string) (code int, output string) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../scripts", name))
	if err != nil {
		t.Fatal(err)
	}
	stub := filepath.Join(t.TempDir(), "gyre")
	if err := os.WriteFile(stub, []byte("#!/usr/bin/env bash\n"+gyre+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", append([]string{path}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), scriptPath(dir), "GYRE="+stub, "GYRE_THREADS=1")
	out, err := cmd.CombinedOutput()
	if _, ok := err.(*exec.ExitError); err != nil && !ok {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// withGPUs puts a stand-in for nvidia-smi before the machine's own, for scripts that run in dir.
func withGPUs(t *testing.T, dir, answers string) {
	t.Helper()
	path := filepath.Join(dir, "bin", "nvidia-smi")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+answers), 0o755); err != nil {
		t.Fatal(err)
	}
}

// scriptPath is the PATH of scripts that run in dir: what a test has put into dir/bin comes first.
func scriptPath(dir string) string {
	return "PATH=" + filepath.Join(dir, "bin") + string(os.PathListSeparator) + os.Getenv("PATH")
}

// Defaults, names, logs and folders are those of RAGEN's scripts.
func TestExperimentScripts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	withGPUs(t, dir, "exit 1\n")
	touch(t, filepath.Join(dir, "models/Qwen2.5-3B/config.json"))
	touch(t, filepath.Join(dir, "models/other/config.json"))
	ppo := "sokoban-PPO-filter-topp09-Qwen2.5-3B-train8x16-analysis128x16-grad-every50"
	grpo := strings.Replace(ppo, "PPO", "GRPO", 1)
	touch(t, filepath.Join(dir, "model_saving/gradient_analysis/sokoban/PPO/filter", ppo,
		"global_step_101/manifest.json"))
	touch(t, filepath.Join(dir, "elsewhere/global_step_51/manifest.json"))
	for _, c := range []struct {
		script, args string
		want         []string
	}{
		{trainScript, "", []string{"<train>", "<run.name=" + ppo + ">",
			"<run.output=model_saving/gradient_analysis/sokoban/PPO/filter>", "<run.steps=101>",
			"<run.project=ragen_gradient_analysis>",
			"<run.save_every=100>", "<run.validate_first=true>", "<run.validate_every=10>", "<envs.0.groups=8>",
			"<envs.0.group_size=16>", "<analysis.groups=128>",
			"<analysis.group_size=16>", "<analysis.every=50>", "<analysis.log_prefilter=true>",
			"<analysis.exit_after=false>", "<filter.strategy=top_p>",
			"<filter.value=0.9>", "<filter.prob_mode=linear>", "<filter.include_zero=false>",
			"<algorithm.advantage=gae>", "<algorithm.kl_coef=0>",
			"<algorithm.entropy_coef=0.001>", "<actor.loss_aggregation=token-mean>", "<model.path=models/Qwen2.5-3B>",
			"gpus=0,1,2,3 ", "filter=top_p:0.9", "computing on the CPU"}},
		{trainScript, "--algo grpo --steps=5 --gpus 0,1,2,3 --save-freq 2 --ppo-micro-batch-size-per-gpu=2 " +
			"--log-prob-micro-batch-size-per-gpu 8 --ray-num-cpus 1 --gpu-memory-utilization 0.5 run.seed=7",
			[]string{"<run.name=" + grpo + ">", "<run.steps=5>", "<run.save_every=2>", "<algorithm.advantage=grpo>",
				"<algorithm.norm_by_std=true>", "<actor.loss_aggregation=seq-mean-token-mean>", "<run.threads=1>",
				"<actor.micro_batch_tokens=2048>", "<run.seed=7>", "<model.device=cpu>", "<engine.kv_mib="}},
		{trainScript, "--model models/other --preset small --gpus 0",
			[]string{"sokoban-PPO-filter-topp09-other-train4x8-analysis24x8-grad-every50", "<analysis.groups=24>"}},
		{probeScript, "", []string{"<analyze>", "<run.project=ragen_gradient_analysis_probe>",
			"<--checkpoint><model_saving/gradient_analysis/sokoban/PPO/filter/" + ppo + "/global_step_101>",
			"<--step><101>",
			"<--output><model_saving/gradient_analysis_probe/sokoban/PPO/filter/sokoban-PPO-filter-topp09-Qwen2.5-3B-probe-ckpt101-noval-kl_and_entropy>",
			"<algorithm.kl_coef=0.001>", "<algorithm.entropy_coef=0.001>", "<model.reference=models/Qwen2.5-3B>"}},
		{probeScript, "--algo GRPO --resume-from-path elsewhere/global_step_51 --with-val",
			[]string{"<--checkpoint><elsewhere/global_step_51>", "<--step><51>", "<--with-val>",
				"GRPO/filter/sokoban-GRPO-filter-topp09-Qwen2.5-3B-probe-ckpt51-withval-kl_and_entropy"}},
		{probeScript, "--checkpoint-root elsewhere --checkpoint-step 51 --log-prob-micro-batch-size-per-gpu 1",
			[]string{"<--checkpoint><elsewhere/global_step_51>", "<actor.micro_batch_tokens=1024>"}},
	} {
		args := strings.Fields(c.args)
		if !strings.Contains(c.args, "--gpus") {
			args = append(args, "--gpus", "0,1,2,3")
		}
		code, output := script(t, dir, `printf '<%s>' "$@"; echo`, c.script, args...)
		if code != 0 {
			t.Fatalf("%s %s: exit code %d\n%s", c.script, c.args, code, output)
		}
		for _, want := range c.want {
			if !strings.Contains(output, want) {
				t.Errorf("%s %s does not say %s:\n%s", c.script, c.args, want, output)
			}
		}
	}
	for _, log := range []string{"logs/gradient_analysis_sokoban_Qwen2.5-3B/" + ppo + ".log",
		"logs/gradient_analysis_probe_sokoban_Qwen2.5-3B/sokoban-PPO-filter-topp09-Qwen2.5-3B-probe-ckpt101-noval-kl_and_entropy.log"} {
		if text := string(readFile(t, filepath.Join(dir, log))); !strings.Contains(text,
			"project=ragen_gradient_analysis") {
			t.Errorf("%s:\n%s", log, text)
		}
	}
}

// On a machine with GPUs a rank computes on each that is asked for, and the first one's memory is what shares are of.
func TestExperimentScriptsChooseTheDevice(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	touch(t, filepath.Join(dir, "models/Qwen2.5-3B/config.json"))
	withGPUs(t, dir, "case $1 in -L) echo 'GPU 0: A'; echo 'GPU 1: B' ;; *) [ \"$*\" = '--query-gpu=memory.total "+
		"--format=csv,noheader,nounits -i 1' ] && echo 81920 ;; esac\n")
	print := `echo "visible=$CUDA_VISIBLE_DEVICES"; printf '<%s>' "$@"; echo`
	for args, want := range map[string][]string{
		"": {"visible=0,1\n", "<model.device=cuda><--ranks><2>", "gpus=0,1 ",
			"ranks=2 "},
		"--gpus 1": {"visible=1\n", "<model.device=cuda><algorithm.advantage=", "gpus=1 ",
			"ranks=1 "},
		"--gpus 1 --gpu-memory-utilization 0.25": {"<engine.kv_mib=20480>"},
	} {
		code, output := script(t, dir, print, trainScript, strings.Fields(args)...)
		for _, w := range want {
			if code != 0 || !strings.Contains(output, w) {
				t.Errorf("%q: exit code %d, %q is missing:\n%s", args, code, w, output)
			}
		}
	}
	for name, want := range map[string][]string{
		"train.sh bandit": {"visible=0\n",
			"<model.device=cuda><--resume>"},
		"train.sh bandit system.n_gpus=2": {"visible=0,1\n",
			"<model.device=cuda><--ranks><2><--resume>"},
		"train.sh bandit rl_or_sft=sft system.n_gpus=2": {"<sft>", "<--ranks><2>"},
		"train.sh bandit system.n_gpus=1 system.cuda_visible_devices=1": {"visible=1\n",
			"<model.device=cuda><--resume>"},
		"train.sh bandit system.n_gpus=2 -- model.device=cpu": {"<model.device=cuda><--ranks><2><model.device=cpu><--resume>"},
		"train.sh bandit system.n_gpus=3": {"system.n_gpus names GPU 2; nvidia-smi " +
			"lists 2"},
		"train.sh bandit system.n_gpus=two": {"system.n_gpus is 'two'"},
		"run_grpo.sh": {"visible=0,1\n",
			"<model.device=cuda><--ranks><2><actor.mini_batch=256>"},
		"run_grpo.sh trainer.n_gpus_per_node=1 trainer.nnodes=1": {"visible=0\n",
			"<model.device=cuda><actor.mini_batch=256>"},
		"run_grpo.sh trainer.n_gpus_per_node=8": {"trainer.n_gpus_per_node names GPU 2; " +
			"nvidia-smi lists 2"},
		"run_grpo.sh trainer.nnodes=2": {"start this on every node with torchrun or " +
			"srun"},
		"hyperparam_search.sh --env_name bandit --exp_base_name b --search_group 1 --n_gpus 2 --micro_batch_size 2": {"<--slots><1>", "<--gpus><0,1><--gpus-per-run><2>"},
		"hyperparam_search.sh --env_name bandit --exp_base_name b --search_group 1 --n_gpus 2 --micro_batch_size 2 " +
			"--parallel": {"<--slots><2>", "<--gpus><0,1><--gpus-per-run><1>"},
		"runs/run_kl_sweep.sh --gpus-per-exp 2": {"<--gpus><0,1><--gpus-per-run><2>", "<--slots><1>"},
	} {
		words := strings.Fields(name)
		_, output := script(t, dir, `[ "$1" = config ] && { for f; do :; done; echo '[run]' >"$f"; exit; }; `+print,
			words[0], words[1:]...)
		for _, w := range want {
			if !strings.Contains(output, w) || strings.Contains(output, "computing on the CPU") {
				t.Errorf("%s: %q is missing, or the CPU is named:\n%s", name, w, output)
			}
		}
	}
	if code, output := script(t, dir, print, trainScript, "--gpus", "0,2"); code != 2 ||
		!strings.Contains(output, "names GPU 2; nvidia-smi lists 2") {
		t.Errorf("a GPU that is not there: exit code %d\n%s", code, output)
	}
}

func TestExperimentScriptsRefuse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	touch(t, filepath.Join(dir, "elsewhere/global_step_51/manifest.json"))
	touch(t, filepath.Join(dir, "models/Qwen2.5-3B/config.json"))
	for _, c := range []struct {
		code               int
		script, args, want string
	}{
		{0, trainScript, "--help", "--algo NAME"},
		{0, probeScript, "-h", "--with-val"},
		{2, trainScript, "--checkpoint-step 3", "unknown option --checkpoint-step"},
		{2, trainScript, "--with-val", "--with-val"},
		{2, trainScript, "--steps", "no value: --steps"},
		{2, trainScript, "--steps 0", "at least 1"},
		{2, trainScript, "--save-freq=x", "--save-freq is 'x'"},
		{2, trainScript, "--algo dpo", "expected PPO or GRPO"},
		{2, trainScript, "--gpus a,b", "expected a list"},
		{2, trainScript, "extra", "unexpected argument 'extra'"},
		{2, trainScript, "--model nowhere", "nowhere is no Hugging Face directory"},
		{2, probeScript, "", "there is no model_saving/"},
		{2, probeScript, "--checkpoint-root elsewhere --checkpoint-step 7", "(its folder has global_step_51)"},
		{2, probeScript, "--resume-from-path models/Qwen2.5-3B", "expected a folder named global_step_N"},
		{3, trainScript, "", "diverged"}, // gyre's own exit code comes through
	} {
		code, output := script(t, dir, "echo diverged; exit 3", c.script, strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(output, c.want) {
			t.Errorf("%s %s: exit code %d, want %d with %q\n%s", c.script, c.args, code, c.code, c.want, output)
		}
	}
}

// The two scripts in a row, for real, with a tiny policy: train and analyse, then probe what was saved.
func TestExperimentScriptsRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	withGPUs(t, dir, "exit 1\n")
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	gyre := fmt.Sprintf("GYRE_TEST_COMMAND=1 exec %q \"$@\"", binary)
	small := []string{"--model", tinyPolicy(t), "--preset", "small", "--gpus", "0", "envs.0.groups=2",
		"envs.0.group_size=4", "envs.0.max_turns=1", "actor.mini_batch=4",
		"analysis.groups=3", "analysis.group_size=2", "filter.strategy=none", "rollout.max_tokens=4",
		"validation.envs.0.groups=2"}
	if code, output := script(t, dir, gyre, trainScript, append([]string{"--steps=2", "analysis.every=1"},
		small...)...); code != 0 {
		t.Fatalf("training: exit code %d\n%s", code, output)
	}
	if code, output := script(t, dir, gyre, probeScript, append([]string{"--checkpoint-step=2", "--with-val"},
		small...)...); code != 0 {
		t.Fatalf("probe: exit code %d\n%s", code, output)
	}
	// What an analysis looked at is kept, whatever --save-freq is: the counterpart of step 51 of 101.
	if code, output := script(t, dir, gyre, probeScript, append([]string{"--checkpoint-step=1"},
		small...)...); code != 0 {
		t.Fatalf("probe of an earlier step: exit code %d\n%s", code, output)
	}
	run := filepath.Join(dir, "model_saving/gradient_analysis/sokoban/PPO/filter/sokoban-PPO-filter-topp09-policy-train4x8-analysis24x8-grad-every50")
	for step, values := range steadyMetrics(t, filepath.Join(run, "metrics.jsonl")) {
		if _, ok := values["grad_norm_prefilter/all/task"]; !ok && step > 0 {
			t.Errorf("step %d was not analysed before the filter", step)
		}
	}
	probed := filepath.Join(dir, "model_saving/gradient_analysis_probe/sokoban/PPO/filter/sokoban-PPO-filter-topp09-policy-probe-ckpt2-withval-kl_and_entropy")
	values := steadyMetrics(t, filepath.Join(probed, "metrics.jsonl"))[2]
	for _, name := range []string{"grad_norm/all/kl", "grad_norm/all/entropy", "grad_norm_prefilter/all/kl",
		"val-env/sokoban/success"} {
		if _, ok := values[name]; !ok {
			t.Errorf("the probe did not log %s", name)
		}
	}
}

// The first RAGEN's commands, for real with a tiny policy: the words are mapped and shown, the run ends where they say.
func TestTrainSh(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	gyre := fmt.Sprintf("GYRE_TEST_COMMAND=1 exec %q \"$@\"", binary)
	small := []string{"--", "rollout.max_tokens=4", "validation.envs.0.groups=2", "run.steps=1"}
	code, output := script(t, dir, gyre, "train.sh",
		append([]string{"two_armed_bandit", "model.base_model=" + tinyPolicy(t), "model.experiment_name=two",
			"training.train_batch_size=8", "training.ppo_batch_size=8", "training.max_turns=1", "training.n_rollout=1",
			"training.no_think_rl=True",
			"optimization.kl_coef=0.001", "optimization.adv_estimator=brpo"}, small...)...)
	if code != 0 || !strings.Contains(output, `advantage = "brpo"`) || !strings.Contains(output, "step 1/1") ||
		!strings.Contains(output, "runs/two") {
		t.Errorf("training: exit code %d\n%s", code, output)
	}
	if text := string(readFile(t, filepath.Join(dir, "debug.log"))); text == "" || !strings.Contains(output, text) {
		t.Error("debug.log is not what the run said")
	}
	code, output = script(t, dir, gyre, "train.sh",
		append([]string{"frozenlake", "rl_or_sft=sft", "sft.output_dir=models/sft/lake",
			"sft.training.base_model=" + tinyPolicy(t),
			"sft.data_generation.train_size=8", "sft.data_generation.test_size=2", "sft.training.epochs=1",
			"training.val_data_num=", "training.n_rollout=1"}, small...)...)
	if code != 0 || !strings.Contains(output, "val_success[FrozenLake]") {
		t.Errorf("fine-tuning and validation: exit code %d\n%s", code, output)
	}
	for _, name := range []string{"best/actor/config.json", "demonstrations/train.parquet",
		"demonstrations/test.jsonl"} {
		if _, err := os.Stat(filepath.Join(dir, "models/sft/lake", name)); err != nil {
			t.Error(err)
		}
	}
	code, output = script(t, dir, gyre, "train.sh",
		append([]string{"frozenlake", "model.base_model=models/sft/lake/merged_model", "model.experiment_name=after",
			"training.train_batch_size=4", "training.ppo_batch_size=4", "training.max_turns=1", "training.n_rollout=1",
			"optimization.adv_estimator=brpo"}, small...)...)
	if code != 0 || !strings.Contains(output, `path = "models/sft/lake/merged_model"`) ||
		!strings.Contains(output, "runs/after") {
		t.Errorf("RL after it: exit code %d\n%s", code, output)
	}
	// Two GPUs that a stand-in reports, and two ranks, on the CPU.
	withGPUs(t, dir, "echo 'GPU 0: A'; echo 'GPU 1: B'\n")
	code, output = script(t, dir, gyre, "train.sh",
		append([]string{"two_armed_bandit", "model.base_model=" + tinyPolicy(t), "model.experiment_name=ranks",
			"system.n_gpus=2",
			"training.train_batch_size=8", "training.ppo_batch_size=8", "training.max_turns=1", "training.n_rollout=1",
			"optimization.adv_estimator=brpo"}, append(small, "model.device=cpu")...)...)
	if code != 0 || !strings.Contains(output, "2 ranks, started by gyre") || !strings.Contains(output,
		"fsdp.shard = \"auto\": none") || strings.Contains(output, "computing on the CPU") {
		t.Errorf("on two GPUs: exit code %d\n%s", code, output)
	}
	for args, want := range map[string]string{"": "usage:", "chess": "chess is no environment",
		"sokoban training.max_turn=3": "did you mean training.max_turns?"} {
		code, output := script(t, dir, gyre, "train.sh", strings.Fields(args)...)
		if !strings.Contains(output, want) || code == 0 {
			t.Errorf("%q: exit code %d, want %q\n%s", args, code, want, output)
		}
	}
}

// The C++ tests need GoogleTest: set-up finds it, installs it where it can, and otherwise fails with what to install.
func TestGoogleTestIsBroughtOrAskedFor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tools map[string]string // by name, what they do
		code  int
		want  string
	}{
		"found": {map[string]string{"c++": "exit 0"}, 0, ""},
		"installed": {map[string]string{"c++": `[ -e "$0.installed" ]`, "id": "echo 0",
			"dnf": `echo "dnf $*"; touch "$(dirname "$0")/c++.installed"`}, 0, "dnf install -y -q gtest-devel"},
		"installed by sudo": {map[string]string{"c++": `[ -e "$0.installed" ]`, "id": "echo 7", "sudo": `shift; "$@"`,
			"pacman": `touch "$(dirname "$0")/c++.installed"`}, 0, "pacman"},
		"installed in vain": {map[string]string{"c++": "exit 1", "id": "echo 0", "apt-get": "exit 1"}, 1,
			"sudo apt-get install -y -qq libgtest-dev"},
		"nobody may install": {map[string]string{"c++": "exit 1", "id": "echo 7", "sudo": "exit 1", "apk": "exit 0"},
			1, "sudo apk add gtest-dev"},
		"no package manager": {map[string]string{"c++": "exit 1", "id": "echo 0"}, 1, "Debian: libgtest-dev"},
		"a Mac with Homebrew": {map[string]string{"c++": "exit 1", "id": "echo 501",
			"brew": `[ "$1" = --prefix ] && exit 1; exit 1`}, 1, "Install it: brew install googletest"},
	} {
		bin := t.TempDir()
		for _, tool := range []string{"bash", "sed", "dirname", "touch", "true"} {
			path, err := exec.LookPath(tool)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(path, filepath.Join(bin, tool)); err != nil {
				t.Fatal(err)
			}
		}
		for tool, does := range c.tools {
			if err := os.WriteFile(filepath.Join(bin, tool), []byte("#!"+bin+"/bash\n"+does+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command("bash", "../../scripts/setup-gtest.sh")
		cmd.Env = []string{"PATH=" + bin, "GYRE_GTEST_SOURCE=/nowhere"}
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: exit code %d, want %d with %q\n%s", name, code, c.code, c.want, out)
		}
	}
}

// scripts/run_grpo.sh understands the command line of the seed on reward components.
func TestRunGRPOScript(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for args, want := range map[string][]string{
		"": {"<train>", "/configs/math500_grpo.toml>", "<actor.mini_batch=256>", "<actor.micro_batch_tokens=6144>",
			"<rollout.max_length=1536>"},
		"data.train_batch_size=16 actor_rollout_ref.rollout.n=4 trainer.total_epochs=5 data.max_response_length=2048 " +
			"--dry-run": {
			"<envs.0.groups=16>", "<envs.0.group_size=4>", "<actor.mini_batch=64>", "<run.steps=145>",
			"<rollout.max_length=2560>", "<--dry-run>"},
		"algorithm.adv_estimator=rloo actor_rollout_ref.actor.optim.lr=5e-6 " +
			"actor_rollout_ref.actor.kl_loss_coef=0.01 actor_rollout_ref.model.path=m run.seed=3": {
			"<algorithm.advantage=rloo>", "<actor.lr=5e-6>", "<algorithm.kl_coef=0.01>", "<model.path=m>",
			`<envs.0.options.tokenizer="m">`, "<run.seed=3>"},
		"custom_reward_function.path=r.py custom_reward_function.name=f": {`component = "command"`, `"r.py", "f"`},
		"trainer.project_name=rldynamics":                                {"<run.project=rldynamics>"},
		"custom_reward_function.name=compute_score":                      {"<rewards.0.weight=0.34><rewards.1.weight=0.33><rewards.2.weight=0.33>"},
	} {
		code, output := script(t, dir, `printf '<%s>' "$@"; echo`, "run_grpo.sh", strings.Fields(args)...)
		for _, w := range want {
			if code != 0 || !strings.Contains(output, w) {
				t.Errorf("%s: exit code %d, does not say %s:\n%s", args, code, w, output)
			}
		}
	}
	// Behind a link it finds its configuration all the same.
	scripts, err := filepath.Abs("../../scripts")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(scripts, "run_grpo.sh"), filepath.Join(dir, "grpo")); err != nil {
		t.Fatal(err)
	}
	link, err := filepath.Rel(scripts, filepath.Join(dir, "grpo"))
	if err != nil {
		t.Fatal(err)
	}
	if code, output := script(t, dir, `printf '<%s>' "$@"; echo`, link); code != 0 ||
		!strings.Contains(output, "/configs/math500_grpo.toml>") || strings.Contains(output, dir+"/configs") {
		t.Errorf("behind a link: exit code %d\n%s", code, output)
	}
	for args, want := range map[string]string{
		"data.shuffle=true":                                 "data.shuffle is not understood",
		"data.train_batch_size=many":                        "'many' is not a whole number",
		"data.train_batch_size=1000 trainer.total_epochs=1": "there are 470 problems",
		"custom_reward_function.name=f":                     "without a path it is",
	} {
		if code, output := script(t, dir, "echo never", "run_grpo.sh", strings.Fields(args)...); code != 2 ||
			!strings.Contains(output, want) {
			t.Errorf("%s: exit code %d, want %q:\n%s", args, code, want, output)
		}
	}
}
