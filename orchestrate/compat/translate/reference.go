package translate

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
)

const introduction = `# Coming from RAGEN or verl

` + "`gyre config translate`" + ` writes the settings of an experiment of theirs as a configuration of Gyre's. Give it what follows
` + "`python train.py`" + ` (the command itself may stand before it), a resolved file, or the words of the first RAGEN's ` + "`train.sh`" + `:

` + "```sh" + `
gyre config translate --config-name _2_sokoban trainer.gradient_analysis_every=50 es_manager.train.env_groups=8 -o mine.toml
python train.py … --cfg job --resolve > resolved.yaml && gyre config translate --yaml resolved.yaml
gyre config translate python3 -m verl.trainer.main_ppo data.train_files=train.parquet actor_rollout_ref.rollout.n=8 -o mine.toml
gyre config translate python -m custom_training.custom_main_ppo --config config/ppo_trainer.yaml data.train_files=train.parquet -o mine.toml
bash train.sh sokoban training.max_turns=5 optimization.adv_estimator=brpo        # translates and trains
` + "```" + `

Each line of the document names the setting that it comes from. What has no counterpart is listed on stderr with the reason; an unknown key
is listed with the nearest known one; a value that Gyre cannot take is an error. Gyre's defaults are RAGEN's, but for the loggers (RAGEN adds
W&B), the collapse metrics (every 5 steps there, off here) and the KL estimator, which a document states where KL is on; so an experiment's
document holds what it changes. A run of verl's on files of prompts (` + "`data.train_files`" + `, or ` + "`-m verl.trainer.main_ppo`" + `) has verl's defaults,
which its document states: plain chat without thinking tags, greedy validation, symmetric clipping, no filter, no early stop, no analysis;
mini-batches count prompts, and steps are epochs × rows of the file. ` + "`+key=value`, `++key=value` and `~key`" + ` are understood; of interpolations
those that name another key.

What differs although the settings are equal: losses are normalised over whole mini-batches and not over micro-batches; batches are never
padded by copies; gradient analysis reports exact gradients unless ` + "`analysis.profile = \"paper\"`" + ` (see [gradient-analysis.md](gradient-analysis.md));
the KL reference is skipped when nothing needs it.

Where their commands are: ` + "`scripts/runs/`" + ` holds RAGEN's experiment scripts with their options, names and folders (gradient analysis, its probe, the
intervention sweeps); ` + "`scripts/train.sh`" + ` and ` + "`scripts/hyperparam_search.sh`" + ` are the first RAGEN's, ` + "`configs/base/`" + ` its base matrix, and
` + "`configs/studies/hyperparam_search.toml`" + ` its search as one study of four stages for ` + "`gyre sweep`" + `. In place of ` + "`plot_gradient_analysis.py`" + ` there is ` + "`gyre plot`" + `.

This page is written from the tables in ` + "`orchestrate/compat/translate`" + ` by ` + "`go generate ./orchestrate/compat/translate`" + `.
`

// Reference is the page docs/from-ragen.md.
func Reference() []byte {
	var b bytes.Buffer
	b.WriteString(introduction)
	b.WriteString("\n## Task configurations\n\n")
	for _, name := range slices.Sorted(maps.Keys(tasks)) {
		if why, refused := strings.CutPrefix(tasks[name], "!"); refused {
			fmt.Fprintf(&b, "- `%s`: none: %s.\n", name, why)
		} else if settings := tasks[name]; settings != "" {
			fmt.Fprintf(&b, "- `%s`: %s.\n", name, code(settings))
		}
	}
	b.WriteString("\n# Keys of RAGEN and verl\n")
	write(&b, ragen)
	b.WriteString("\n# Keys of the first RAGEN\n\nWhat `train.sh` does not say follows its rules and not Gyre's defaults: greedy validation every 100 steps, no filter, " +
		"symmetric clipping, a penalty of 1 for replies without an action, no early stop, no gradient analysis.\n")
	write(&b, trainSh)
	return b.Bytes()
}

func write(b *bytes.Buffer, sections []Section) {
	for _, section := range sections {
		fmt.Fprintf(b, "\n## %s\n\n| theirs | ours | |\n|---|---|---|\n", section.Title)
		for _, r := range section.Rules {
			ours := "—"
			if r.Ours != "" {
				ours = "`" + strings.Join(strings.Split(r.Ours, ", "), "` `") + "`"
			}
			fmt.Fprintf(b, "| %s | %s | %s |\n", code(r.Keys), ours, r.How)
		}
	}
}

func code(words string) string { return "`" + strings.Join(strings.Fields(words), "` `") + "`" }
