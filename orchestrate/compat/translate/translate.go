package translate

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"gyre/internal/nearest"
	"gyre/orchestrate/config"
)

// Result is a translated configuration.
type Result struct {
	Document []byte // TOML, which says of each line where it comes from
	Config   *config.Config
	Command  []string // what follows `gyre train FILE`: --resume-from DIR
	Unused   []Unused // settings that have no counterpart
	Notes    []string // what to do or to know before the run
}

// Unused is a setting that the document does not carry, and why.
type Unused struct{ Key, Value, Why string }

// Rule says what becomes of the keys of another program.
type Rule struct {
	Keys string // one or several, separated by spaces; "a.*" stands for all below a
	Ours string // what they become, for people; "" = nothing
	How  string // how, or why nothing does
	// set carries the value over; nil where Ours is one key that takes the value as it is, or where several settings
	// act together.
	set func(t *translation, key string, value any)
}

// Section is a part of a table of rules.
type Section struct {
	Title string
	Rules []Rule
}

// translation is one configuration on its way.
type translation struct {
	verl    bool           // a run of verl itself, and not of RAGEN
	given   map[string]any // their settings by key
	order   []string       // of their first mention
	used    map[string]bool
	doc     document
	command []string
	unused  []Unused
	notes   []string
	errs    []error
}

// Words translates Hydra overrides, as they follow `python train.py`; the command itself may stand before them. A
// word --yaml FILE is a resolved configuration that the overrides after it change. checks judge the outcome as they
// would a configuration file.
func Words(words []string, checks ...config.Check) (Result, error) {
	t := newTranslation()
	begun := false // the command that the words were given to ends with the first key=value
	for i := 0; i < len(words); i++ {
		word := words[i]
		option, value, joined := strings.Cut(word, "=")
		switch {
		case slices.Contains([]string{"--config-name", "-cn", "--yaml", "--config", "-m"}, option):
			if !joined {
				if i++; i == len(words) {
					return Result{}, fmt.Errorf("%s needs a value", option)
				}
				value = words[i]
			}
			if err := t.begin(option, value); err != nil {
				return Result{}, err
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
		case begun:
			t.fail(word, "is no key=value")
		}
	}
	if len(t.order) == 0 {
		return Result{}, errors.New("nothing to translate: expected key=value words, --config-name NAME or --yaml FILE")
	}
	t.verl = t.verl || t.given["data.train_files"] != nil
	t.apply(ragen, false)
	t.composeRAGEN()
	return t.finish(checks)
}

var environment = regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`)

// TrainSh translates the words of `bash train.sh ENV key=value …`.
func TrainSh(words []string, checks ...config.Check) (Result, error) {
	t := newTranslation()
	if len(words) == 0 || strings.Contains(words[0], "=") {
		return Result{}, errors.New("expected an environment (two_armed_bandit, sokoban, frozenlake) and key=value " +
			"words")
	}
	for _, word := range words[1:] {
		key, value, joined := strings.Cut(word, "=")
		if !joined {
			t.fail(word, "is no key=value")
			continue
		}
		t.override(key, value)
	}
	t.apply(trainSh, true)
	t.composeTrainSh(words[0])
	return t.finish(checks)
}

func newTranslation() *translation {
	return &translation{given: map[string]any{}, used: map[string]bool{}}
}

// begin takes what the words stand on: a program, a file or a task's configuration.
func (t *translation) begin(option, value string) error {
	switch option {
	case "-m":
		return t.module(value)
	case "--config":
		return t.file(value)
	}
	return t.base(option, value)
}

// base takes the settings of a task's configuration or of a file.
func (t *translation) base(option, value string) error {
	if option != "--yaml" {
		t.verl = t.verl || strings.TrimSuffix(value, ".yaml") == "ppo_trainer"
		settings, known := tasks[strings.TrimSuffix(value, ".yaml")]
		switch {
		case !known:
			names := make([]string, 0, len(tasks))
			for name := range tasks {
				names = append(names, name)
			}
			return fmt.Errorf("%s %s is not a task configuration of RAGEN%s", option, value, nearest.Hint(value, names))
		case strings.HasPrefix(settings, "!"):
			return fmt.Errorf("%s %s: %s", option, value, settings[1:])
		}
		for _, word := range strings.Fields("trainer.project_name=ragen " + settings) {
			key, value, _ := strings.Cut(word, "=")
			t.override(key, value)
		}
		return nil
	}
	text, err := os.ReadFile(value)
	if err != nil {
		return err
	}
	var tree map[string]any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return fmt.Errorf("%s: %w", value, err)
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
			return fmt.Errorf("%s: %s is %s: the file is not resolved; write it with `python train.py … --cfg job "+
				"--resolve`", value, key, text)
		}
	}
	return nil
}

var interpolation = regexp.MustCompile(`^\$\{[\w.]+\}$`)

func (t *translation) flatten(prefix string, tree map[string]any) {
	keys := make([]string, 0, len(tree))
	for key := range tree {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		if inner, ok := tree[key].(map[string]any); ok {
			t.flatten(prefix+key+".", inner)
		} else {
			t.give(prefix+key, tree[key])
		}
	}
}

// override takes one key=value word: the value is YAML, as Hydra's nearly is.
func (t *translation) override(key, text string) {
	value := parsed(text)
	if tree, ok := value.(map[string]any); ok {
		t.flatten(key+".", tree)
		return
	}
	t.give(key, value)
}

// parsed reads a value as YAML.
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

// apply carries every setting over by the rule of its key. An unknown key is an error where the table is complete.
func (t *translation) apply(sections []Section, complete bool) {
	exact, below := map[string]Rule{}, map[string]Rule{}
	var known []string
	for _, section := range sections {
		for _, rule := range section.Rules {
			for _, key := range strings.Fields(rule.Keys) {
				if prefix, all := strings.CutSuffix(key, "*"); all {
					below[prefix] = rule
				} else {
					exact[key] = rule
					known = append(known, key)
				}
			}
		}
	}
	for _, key := range t.order {
		value, still := t.given[key]
		if !still { // taken out by ~key
			continue
		}
		rule, ok := exact[key]
		for prefix := key; !ok && prefix != ""; {
			i := strings.LastIndexByte(strings.TrimSuffix(prefix, "."), '.')
			prefix = prefix[:i+1]
			rule, ok = below[prefix]
		}
		switch {
		case !ok && complete:
			t.fail(key, "is no key of train.sh%s", nearest.Hint(key, known))
		case !ok:
			t.drop(key, show(value), "unknown to this translation"+nearest.Hint(key, known))
		case rule.Ours == "":
			t.drop(key, show(value), rule.How)
		case value == nil:
			t.used[key] = true // null stands for the default, there as here
		case rule.set != nil:
			rule.set(t, key, value)
		case !strings.ContainsAny(rule.Ours, " ,"):
			t.put(rule.Ours, value, key)
		}
	}
}

// finish writes the document and has it judged.
func (t *translation) finish(checks []config.Check) (Result, error) {
	if len(t.errs) > 0 {
		return Result{}, errors.Join(t.errs...)
	}
	text := t.doc.render()
	tolerant := make([]config.Check, len(checks))
	for i, check := range checks {
		tolerant[i] = func(c *config.Config, report func(key, format string, args ...any)) {
			check(c, func(key, format string, args ...any) {
				if missingFile(args) { // the document is right; the reader fetches the data before training
					t.note("%s: %s", key, fmt.Sprintf(format, args...))
					return
				}
				report(key, format, args...)
			})
		}
	}
	c, err := config.Parse("translation", text, nil, tolerant...)
	if err != nil {
		return Result{}, fmt.Errorf("the translated configuration cannot run:\n%w", err)
	}
	return Result{Document: text, Config: c, Command: t.command, Unused: t.unused, Notes: t.notes}, nil
}

// missingFile reports whether a problem is a file that is not there.
func missingFile(args []any) bool {
	return slices.ContainsFunc(args, func(a any) bool {
		err, ok := a.(error)
		return ok && errors.Is(err, fs.ErrNotExist)
	})
}

// put sets one of our keys; from names the settings it comes from.
func (t *translation) put(key string, value any, from ...string) {
	var origin []string
	for _, name := range from {
		if v, ok := t.given[name]; ok {
			origin = append(origin, name+"="+show(v))
		} else {
			origin = append(origin, name)
		}
	}
	t.doc.set(key, value, strings.Join(origin, " "))
}

// rule is a value that the other program takes where nothing is said.
type rule struct {
	key   string
	value any
}

// rules puts the values of rules that nothing has set.
func (t *translation) rules(list []rule, from string) {
	for _, r := range list {
		if !t.doc.has(r.key) {
			t.put(r.key, r.value, from)
		}
	}
}

func (t *translation) drop(key, value, why string) {
	t.unused = append(t.unused, Unused{key, value, why})
}

func (t *translation) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(t.notes, text) {
		t.notes = append(t.notes, text)
	}
}

func (t *translation) fail(key, format string, args ...any) {
	t.errs = append(t.errs, fmt.Errorf("%s "+format, append([]any{key}, args...)...))
}

// The values of settings that act together, with the other program's defaults.

func (t *translation) text(key, missing string) string {
	if v := t.given[key]; v != nil {
		return show(v)
	}
	return missing
}

func (t *translation) truth(key string, missing bool) bool {
	switch v := t.given[key].(type) {
	case nil:
		return missing
	case bool:
		return v
	default:
		t.fail(key, "is %s, expected true or false", show(v))
		return missing
	}
}

func (t *translation) number(key string, missing float64) float64 {
	switch v := t.given[key].(type) {
	case nil:
		return missing
	case int:
		return float64(v)
	case float64:
		return v
	default:
		t.fail(key, "is %s, expected a number", show(v))
		return missing
	}
}

func (t *translation) integer(key string, missing int) int {
	x := t.number(key, float64(missing))
	if x != math.Trunc(x) || math.Abs(x) > 1<<53 {
		t.fail(key, "is %s, expected an integer", show(t.given[key]))
		return missing
	}
	return int(x)
}

func (t *translation) list(key string) []any {
	switch v := t.given[key].(type) {
	case nil:
		return nil
	case []any:
		return v
	default:
		return []any{v}
	}
}

// model puts a model's directory: a name on the hub becomes the place where `gyre model pull` puts it.
func (t *translation) model(key, name, from string) {
	if hubName.MatchString(name) {
		if _, err := os.Stat(name); err != nil {
			dir := "models/" + filepath.Base(name)
			if _, err := os.Stat(dir); err != nil {
				t.note("get the model: gyre model pull %s", name)
			}
			name = dir
		}
	}
	t.put(key, name, from)
}

var hubName = regexp.MustCompile(`^[\w-][\w.-]*/[\w.-]+$`)

// device says how to compute on the GPUs that other programs take for granted.
func (t *translation) device(gpus int) {
	if gpus > 1 {
		t.note("for %d GPUs, a rank on each: gyre train FILE --ranks %d model.device=cuda", gpus, gpus)
		return
	}
	t.note("for a GPU: gyre train FILE model.device=cuda")
}

// micro puts the size of a forward pass, which other programs count in sequences.
func micro(t *translation, key string, value any) {
	n := t.integer(key, 1)
	t.put("actor.micro_batch_tokens", 1024*n, key)
	t.put("analysis.paper_micro_batch", n, key)
}

// show writes a value as an override would.
func show(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case []any:
		parts := make([]string, len(v))
		for i, x := range v {
			parts[i] = show(x)
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	return fmt.Sprint(value)
}
