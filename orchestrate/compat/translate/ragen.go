package translate

import (
	"path"
	"slices"
	"strings"
)

// composeRAGEN carries over the settings that act together.
func (t *translation) composeRAGEN() {
	t.place()
	t.resume()
	t.regularise()
	const estimator, bilevel = "algorithm.adv_estimator", "algorithm.bi_level_gae"
	if t.truth(bilevel, false) {
		t.put("algorithm.advantage", "bi_level_gae", bilevel)
		t.put("rollout.turn_rewards", true, bilevel) // there the estimator finds the turns' rewards by itself
	}
	const mode, window = "agent_proxy.context_window_mode", "agent_proxy.max_context_window"
	contexts := map[string]string{"full": "", "limited_multi_turn": "window", "single_turn": "single_turn"}
	if context, known := contexts[t.text(mode, "full")]; !known {
		t.fail(mode, "is %s, expected full, limited_multi_turn or single_turn", t.text(mode, ""))
	} else if context != "" {
		t.put("rollout.context", context, mode)
		t.put("rollout.window", max(t.integer(window, 0), 0), window)
	}
	groups, size := "es_manager.train.env_groups", "es_manager.train.group_size"
	if t.given[groups] == nil && t.given["data.train_batch_size"] != nil {
		groups = "data.train_batch_size"
	}
	if t.given[size] == nil && t.given["actor_rollout_ref.rollout.n"] != nil {
		size = "actor_rollout_ref.rollout.n"
	}
	t.doc.envs = t.sources("es_manager.train", groups, size, 8, 16)
	gpus := t.integer("trainer.n_gpus_per_node", 1) * t.integer("trainer.nnodes", 1)
	defer t.device(gpus)
	if t.verl {
		t.composeVerl(t.integer(groups, 1024), t.integer(size, 1))
		return
	}
	validation := t.sources("es_manager.val", "es_manager.val.env_groups", "es_manager.val.group_size", 512, 1)
	same := slices.EqualFunc(t.doc.envs, validation, func(a, b source) bool {
		return a.tag == b.tag && b.groups == 512 && b.groupSize == 1
	})
	if !same { // otherwise what Gyre does by itself
		t.doc.validation = validation
	}
	if t.given["model_path"] == nil && t.given["actor_rollout_ref.model.path"] == nil {
		t.put("model.path", t.modelDir("Qwen/Qwen2.5-3B-Instruct"), "RAGEN's default")
	}
}

// place splits the folder of checkpoints into output and name.
func (t *translation) place() {
	const experiment, folder = "trainer.experiment_name", "trainer.default_local_dir"
	name := t.text(experiment, "")
	if dir := t.text(folder, ""); dir != "" {
		t.put("run.output", path.Dir(dir), folder)
		if path.Base(dir) != name {
			t.put("run.name", path.Base(dir), folder)
			return
		}
	}
	if name != "" {
		t.put("run.name", strings.ReplaceAll(name, "/", "-"), experiment)
	}
}

func (t *translation) resume() {
	switch mode := t.text("trainer.resume_mode", "disable"); mode {
	case "auto":
		t.command = append(t.command, "--resume")
	case "resume_path":
		from := t.text("trainer.resume_from_path", "")
		if from == "" {
			t.fail("trainer.resume_from_path", "is missing: trainer.resume_mode is resume_path")
		}
		t.command = append(t.command, "--resume-from", from)
	case "disable":
	default:
		t.fail("trainer.resume_mode", "is %s, expected auto, disable or resume_path", mode)
	}
}

// regularise carries over the KL term, which is part of the loss, of the rewards, or off.
func (t *translation) regularise() {
	const use, ref, coef, kind = "actor_rollout_ref.actor.use_kl_loss", "actor_rollout_ref.actor.use_ref",
		"actor_rollout_ref.actor.kl_loss_coef", "actor_rollout_ref.actor.kl_loss_type"
	const inReward, control = "algorithm.use_kl_in_reward", "algorithm.kl_ctrl."
	estimator := "kl"
	if t.verl {
		estimator = "low_var_kl"
	}
	switch {
	case t.truth(inReward, false):
		t.put("algorithm.kl_in", "reward", inReward)
		t.put("algorithm.kl_coef", t.number(control+"kl_coef", 0.001), control+"kl_coef")
		t.put("algorithm.kl_estimator", t.text("algorithm.kl_penalty", "kl"), "algorithm.kl_penalty")
		for _, k := range [][2]string{{"type", "kl_control"}, {"horizon", "kl_horizon"}, {"target_kl", "kl_target"}} {
			if v := t.given[control+k[0]]; v != nil {
				t.put("algorithm."+k[1], v, control+k[0])
			}
		}
	case t.truth(use, false) && t.truth(ref, true):
		t.put("algorithm.kl_coef", t.number(coef, 0.001), coef)
		t.put("algorithm.kl_estimator", t.text(kind, estimator), kind)
	case t.given[use] != nil || t.given[ref] != nil:
		t.put("algorithm.kl_coef", 0.0, use, ref)
	}
}

// sources are the environments of one side.
func (t *translation) sources(side, groupsKey, sizeKey string, groups, size int) (out []source) {
	groups, size = t.integer(groupsKey, groups), t.integer(sizeKey, size)
	tags, shares := t.list(side+".env_configs.tags"), t.list(side+".env_configs.n_groups")
	if tags == nil {
		tags = []any{"CoordSokoban"}
	}
	if shares == nil {
		shares = []any{groups}
	}
	if len(shares) != len(tags) {
		t.fail(side+".env_configs.n_groups", "has %d numbers for %d tags", len(shares), len(tags))
		return nil
	}
	total := 0
	for i, tag := range tags {
		n, ok := shares[i].(int)
		if !ok {
			t.fail(side+".env_configs.n_groups", "is %s, expected integers", show(shares))
			return nil
		}
		total += n
		s := source{tag: show(tag), groups: n, groupSize: size, turns: t.integer("agent_proxy.max_turn", 5),
			perTurn: t.integer("agent_proxy.max_actions_per_turn", 2), from: side}
		s.options, s.allActions = t.options(s.tag)
		out = append(out, s)
	}
	if total != groups {
		t.fail(side+".env_configs.n_groups", "adds up to %d groups, %s is %d", total, groupsKey, groups)
	}
	return out
}

// options are those of a tag, with its actions per episode, 0 where they are not given.
func (t *translation) options(tag string) (options map[string]any, actions int) {
	options = t.below("custom_envs." + tag + ".env_config.")
	if x, y := options["dim_x"], options["dim_y"]; x != nil && y != nil { // Sokoban's board: one option with Gyre
		options["size"] = []any{x, y}
		delete(options, "dim_x")
		delete(options, "dim_y")
	}
	if tag == "MetamathQA" && options["problems"] == nil { // RAGEN's downloads the data set
		const file = "data/metamathqa/train.jsonl"
		options["problems"] = file
		t.note("get the problems: gyre data prepare metamathqa (writes %s)", file)
	}
	return options, t.integer("custom_envs."+tag+".max_actions_per_traj", 0)
}

// below are the given settings whose keys begin with prefix, by the rest of their keys.
func (t *translation) below(prefix string) map[string]any {
	out := map[string]any{}
	for key, value := range t.given {
		if name, ok := strings.CutPrefix(key, prefix); ok && value != nil {
			out[name] = value
		}
	}
	return out
}
