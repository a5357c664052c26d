package cli

import (
	"strings"
	"testing"
)

// scripts/run_grpo.sh understands the command line of the seed on reward components.
func TestRunGRPOScript(t *testing.T) {
	dir := t.TempDir()
	for args, want := range map[string][]string{
		"": {"<train>", "/configs/math500_grpo.toml>", "<actor.mini_batch=256>", "<actor.micro_batch_tokens=6144>", "<rollout.max_length=1536>"},
		"data.train_batch_size=16 actor_rollout_ref.rollout.n=4 trainer.total_epochs=5 data.max_response_length=2048 --dry-run": {
			"<envs.0.groups=16>", "<envs.0.group_size=4>", "<actor.mini_batch=64>", "<run.steps=145>", "<rollout.max_length=2560>", "<--dry-run>"},
		"algorithm.adv_estimator=rloo actor_rollout_ref.actor.optim.lr=5e-6 actor_rollout_ref.actor.kl_loss_coef=0.01 actor_rollout_ref.model.path=m run.seed=3": {
			"<algorithm.advantage=rloo>", "<actor.lr=5e-6>", "<algorithm.kl_coef=0.01>", "<model.path=m>", `<envs.0.options.tokenizer="m">`, "<run.seed=3>"},
		"custom_reward_function.path=r.py custom_reward_function.name=f": {`component = "command"`, `"r.py", "f"`},
		"custom_reward_function.name=compute_score":                      {"<rewards.0.weight=0.34><rewards.1.weight=0.33><rewards.2.weight=0.33>"},
	} {
		code, output := script(t, dir, `printf '<%s>' "$@"; echo`, "run_grpo.sh", strings.Fields(args)...)
		for _, w := range want {
			if code != 0 || !strings.Contains(output, w) {
				t.Errorf("%s: exit code %d, does not say %s:\n%s", args, code, w, output)
			}
		}
	}
	for args, want := range map[string]string{
		"data.shuffle=true":                                 "data.shuffle is not understood",
		"data.train_batch_size=many":                        "'many' is not a whole number",
		"data.train_batch_size=1000 trainer.total_epochs=1": "there are 470 problems",
		"custom_reward_function.name=f":                     "without a path it is",
	} {
		if code, output := script(t, dir, "echo never", "run_grpo.sh", strings.Fields(args)...); code != 2 || !strings.Contains(output, want) {
			t.Errorf("%s: exit code %d, want %q:\n%s", args, code, want, output)
		}
	}
}
