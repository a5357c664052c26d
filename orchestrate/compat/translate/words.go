package translate

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"gyre/internal/nearest"
	"gyre/orchestrate/config"
)

// begins are the options that name what the words stand on: a program, a file, a task's configuration or the
// environment of train.sh.
var begins = map[string]func(t *translation, value string) error{
	"--config-name": (*translation).task,
	"-cn":           (*translation).task,
	"--yaml":        (*translation).resolved,
	"--config":      (*translation).file,
	"-m":            (*translation).module,
	"--train-sh":    func(t *translation, env string) error { t.trainSh = env; return nil },
}

// Words translates Hydra overrides, as they follow `python train.py`; the command itself may stand before them. A word
// --yaml FILE is a resolved configuration that the overrides after it change. The words after --train-sh ENV are those
// of `bash train.sh ENV`. A shell script stands for the first training that it starts. checks judge the outcome as they
// would a configuration file. Beside an error the result has the document of what could be translated.
func Words(words []string, checks ...config.Check) (Result, error) {
	t := &translation{given: map[string]any{}}
	words, err := t.expandScript(words)
	if err != nil {
		return Result{}, err
	}
	begun := false // the command that the words were given to ends with the first key=value
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		option, value, joined := strings.Cut(word, "=")
		switch begin := begins[option]; {
		case begin != nil:
			if !joined {
				if len(words) == 0 {
					return Result{}, fmt.Errorf("%s needs a value", option)
				}
				value, words = words[0], words[1:]
			}
			if err := begin(t, value); err != nil {
				t.errs = append(t.errs, fmt.Errorf("%s %s %w", option, value, err))
			}
		case strings.HasPrefix(word, "~"):
			delete(t.given, option[1:])
		case strings.HasPrefix(word, "-"):
			t.drop(option, value, "an option of Hydra or of the launcher, not of the experiment")
		case joined && environment.MatchString(option):
			t.drop(option, value, "a variable of the environment")
		case joined:
			begun = true
			t.override(strings.TrimLeft(option, "+"), value)
		case begun || t.trainSh != "":
			t.fail(word, "is no key=value")
		}
	}
	if t.trainSh != "" {
		t.apply(table("Keys of the first RAGEN"), true)
		t.composeTrainSh()
		return t.finish(checks)
	}
	if len(t.order) == 0 {
		if len(t.errs) > 0 {
			return Result{}, errors.Join(t.errs...)
		}
		return Result{}, errors.New("nothing to translate: expected key=value words, --config-name NAME or --yaml FILE")
	}
	t.verl = t.verl || t.given["data.train_files"] != nil
	t.apply(table("Keys of RAGEN and verl"), false)
	t.composeRAGEN()
	return t.finish(checks)
}

var environment = regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`)

// task takes the settings of one of RAGEN's task configurations, or of verl's own.
func (t *translation) task(name string) error {
	name = strings.TrimSuffix(name, ".yaml")
	t.verl = t.verl || name == "ppo_trainer"
	known := tasks()
	task, ok := known[name]
	switch {
	case !ok:
		return fmt.Errorf("is not a task configuration of RAGEN%s", nearest.Hint(name,
			slices.Collect(maps.Keys(known))))
	case task.how != "":
		return fmt.Errorf("is none that can be translated: %s", task.how)
	}
	for _, word := range append([]string{"trainer.project_name=ragen"}, task.ours...) {
		key, value, _ := strings.Cut(word, "=")
		t.override(key, value)
	}
	return nil
}

// resolved takes the settings of a resolved file.
func (t *translation) resolved(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	var tree map[string]any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return fmt.Errorf("is no YAML: %w", err)
	}
	t.flatten("", tree)
	for _, key := range t.order {
		text, ok := t.given[key].(string)
		for ok && interpolation.MatchString(text) { // one that stands for another key
			other, has := t.given[text[2:len(text)-1]]
			if !has || other == any(text) {
				break
			}
			t.given[key] = other
			text, ok = other.(string)
		}
		if ok && strings.Contains(text, "${") {
			return fmt.Errorf("is not resolved: %s is %s; write it with `python train.py … --cfg job --resolve`", key,
				text)
		}
	}
	return nil
}

var interpolation = regexp.MustCompile(`^\$\{[\w.]+\}$`)

func (t *translation) flatten(prefix string, tree map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		if inner, ok := tree[key].(map[string]any); ok {
			t.flatten(prefix+key+".", inner)
		} else {
			t.give(prefix+key, tree[key])
		}
	}
}

// override takes one key=value word.
func (t *translation) override(key, text string) {
	value := parsed(text)
	if tree, ok := value.(map[string]any); ok {
		t.flatten(key+".", tree)
		return
	}
	t.give(key, value)
}

// parsed reads a value as YAML, as Hydra's nearly are.
func parsed(text string) (value any) {
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		value = text
	}
	if s, ok := value.(string); ok && (strings.EqualFold(s, "none") || s == "") {
		return nil
	}
	return value
}

func (t *translation) give(key string, value any) {
	if _, before := t.given[key]; !before {
		t.order = append(t.order, key)
	}
	t.given[key] = value
}
