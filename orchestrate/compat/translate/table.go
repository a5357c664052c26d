package translate

import (
	_ "embed"
	"slices"
	"strings"
)

//go:embed keys.md
var keysPage string

// Keys are the lines of the list of keys that contain one of words; all of it without words.
func Keys(words []string) string {
	if len(words) == 0 {
		return keysPage
	}
	var b strings.Builder
	for line := range strings.Lines(keysPage) {
		if strings.HasPrefix(line, "- `") &&
			slices.ContainsFunc(words, func(word string) bool { return strings.Contains(line, word) }) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// row is a line of a list of keys.md: what becomes of another program's keys.
type row struct {
	keys []string // "a.*" stands for all below a
	ours []string // nil = nothing
	how  string   // how, or why nothing does
}

// table reads the rows of a chapter of the page.
func table(chapter string) (rows []row) {
	_, text, _ := strings.Cut(keysPage, "\n## "+chapter+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	for line := range strings.Lines(text) {
		if theirs, rest, found := strings.Cut(line, " → "); found {
			ours, how, _ := strings.Cut(rest, ": ")
			rows = append(rows, row{quoted(theirs), quoted(ours), strings.TrimSpace(how)})
		}
	}
	return rows
}

// tasks are RAGEN's task configurations as the page lists them: what they change of its base, or why they cannot be
// translated.
func tasks() map[string]row {
	list := map[string]row{}
	page, _, _ := strings.Cut(keysPage, "\n## Keys ")
	for line := range strings.Lines(page) {
		if text, ok := strings.CutPrefix(line, "- `"); ok {
			name, text, _ := strings.Cut(text, "`: ")
			why, refused := strings.CutPrefix(strings.TrimSuffix(text, ".\n"), "none: ")
			if !refused {
				why = ""
			}
			list[name] = row{ours: quoted(text), how: why}
		}
	}
	return list
}

// quoted are the words of text between backquotes.
func quoted(text string) (words []string) {
	for i, word := range strings.Split(text, "`") {
		if i%2 == 1 {
			words = append(words, word)
		}
	}
	return words
}

// conversion gives what a key of ours takes of their value; nil where there is nothing to set.
type conversion func(t *translation, key string, value any) any

// conversions are those of keys whose values do not become ours as they are.
var conversions = map[string]conversion{
	"trainer.test_freq": nonNegative,
	"trainer.save_freq": func(t *translation, key string, _ any) any {
		if n := t.integer(key, 100); n > 0 {
			return n
		}
		return -1
	},
	"trainer.logger":                                   loggers,
	"trainer.total_epochs":                             elsewhere,
	"trainer.n_gpus_per_node":                          func(_ *translation, _ string, value any) any { return value },
	"algorithm.bi_level_gae":                           elsewhere,
	"collapse_detection.num_samples":                   renamed(map[any]any{"all": 4096}),
	"actor_rollout_ref.actor.checkpoint.save_contents": hasOptimizer,
	"critic.checkpoint.save_contents":                  hasOptimizer,
	"model_path":                                       modelDir,
	"actor_rollout_ref.model.path":                     modelDir,
	"critic.model.tokenizer_path":                      elsewhere,
	"critic.model.path": func(t *translation, key string, value any) any {
		if show(value) == t.text("model_path", t.text("actor_rollout_ref.model.path", "")) {
			return nil
		}
		return modelDir(t, key, value)
	},
	"lora.alpha":                             withRank,
	"lora.target_modules":                    withRank,
	"actor_rollout_ref.model.lora_alpha":     withRank,
	"actor_rollout_ref.model.target_modules": withRank,
	"actor_rollout_ref.rollout.top_k":        nonNegative,
	"data.max_prompt_length": func(t *translation, key string, _ any) any {
		return t.integer(key, 512) + t.integer("data.max_response_length", 512)
	},
	doSample: func(t *translation, key string, _ any) any {
		if t.truth(key, true) {
			return nil
		}
		return 0.0
	},
	"actor_rollout_ref.rollout.val_kwargs.temperature": func(t *translation, _ string, value any) any {
		if t.truth(doSample, true) {
			return value
		}
		return nil
	},
	"agent_proxy.reward_normalization.grouping":     renamed(map[any]any{"inductive": "tag"}),
	"actor_rollout_ref.rollout.rollout_filter_type": renamed(map[any]any{"std": "largest", "std_rev": "smallest"}),
	"actor_rollout_ref.rollout.rollout_filter_ratio": func(t *translation, key string, value any) any {
		if t.given["actor_rollout_ref.rollout.rollout_filter_value"] != nil {
			return nil
		}
		t.put("filter.value", value, key)
		return "top_k"
	},
	"actor_rollout_ref.actor.clip_ratio": func(t *translation, key string, value any) any {
		for _, side := range []string{"low", "high"} {
			if t.given[key+"_"+side] == nil {
				t.put("actor.clip_"+side, value, key)
			}
		}
		return nil
	},
	"actor_rollout_ref.actor.optim.lr_warmup_steps":        nonNegative,
	"critic.optim.lr_warmup_steps":                         nonNegative,
	"micro_batch_size_per_gpu":                             microBatch,
	"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": microBatch,
	"training.micro_batch_size":                            microBatch,
	"sft.training.micro_batch_size":                        microBatch,
	"training.no_think_rl": func(t *translation, key string, _ any) any {
		if t.truth(key, false) {
			return "action"
		}
		return nil
	},
}

const doSample = "actor_rollout_ref.rollout.val_kwargs.do_sample"

// elsewhere leaves a setting to those that act together with it.
func elsewhere(*translation, string, any) any { return nil }

func nonNegative(t *translation, key string, _ any) any { return max(t.integer(key, 0), 0) }

func renamed(names map[any]any) conversion {
	return func(_ *translation, _ string, value any) any {
		if text, ok := value.(string); ok && names[text] != nil {
			return names[text]
		}
		return value
	}
}

func hasOptimizer(t *translation, key string, _ any) any {
	return slices.Contains(t.list(key), any("optimizer"))
}

// withRank leaves out settings of adapters where all weights are trained.
func withRank(t *translation, key string, value any) any {
	if t.integer("lora.rank", 0)+t.integer("actor_rollout_ref.model.lora_rank", 0) == 0 {
		return nil
	}
	return renamed(map[any]any{"all-linear": "all"})(t, key, value)
}

func modelDir(t *translation, _ string, value any) any { return t.modelDir(show(value)) }

// microBatch is the size of a forward pass in tokens: other programs count sequences, as our paper profile does.
func microBatch(t *translation, key string, _ any) any {
	n := t.integer(key, 1)
	t.put("analysis.paper_micro_batch", n, key)
	return 1024 * n
}

func loggers(t *translation, key string, _ any) any {
	out := []any{"jsonl"}
	for _, name := range t.list(key) {
		switch show(name) {
		case "console":
		case "wandb", "tensorboard":
			out = append(out, name)
		case "mlflow":
			out = append(out, verbatim(`{ command = ["python3", "scripts/mlflow_sink.py"] }`))
		default:
			t.drop(key, show(name), "name a program that takes metrics in run.loggers")
		}
	}
	return out
}
