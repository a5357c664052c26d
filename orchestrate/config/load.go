package config

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"gyre/internal/settings"
)

// Check is a further test of a configuration by somebody who knows more than this package (which environments there
// are, say). It reports what is wrong with a key such as "envs.0.options.boxes".
type Check func(c *Config, report func(key, format string, args ...any))

// Load reads a TOML file, applies overrides such as "filter.value=0.8" or "envs.0.options.boxes=2" and the defaults
// of keys that neither mentions, and checks the result. Paths in it are relative to the working directory, not to the
// file. The error is a *settings.Error with every problem found.
func Load(path string, overrides []string, checks ...Check) (*Config, error) {
	return LoadFor(nil, path, overrides, checks...)
}

// LoadFor is Load for a run that is given its episodes instead of playing them if given says so of the configuration:
// there may then be no [[envs]], and the sizes in it bind nothing. nil stands for never.
func LoadFor(given func(*Config) bool, path string, overrides []string, checks ...Check) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, settings.Unreadable(path, err)
	}
	return interpret(given, path, data, overrides, checks)
}

// Parse is Load for a file's content; name stands for the file in errors.
func Parse(name string, data []byte, overrides []string, checks ...Check) (*Config, error) {
	return interpret(nil, name, data, overrides, checks)
}

// removed are keys of earlier configurations, with the values that runs wrote for them unless they were told otherwise.
var removed = map[string]settings.Removed{
	"algorithm.entropy_max":     {Value: 0.005, Instead: "algorithm.entropy_coef stays as it is"},
	"algorithm.entropy_step":    {Value: 1e-4, Instead: "algorithm.entropy_coef stays as it is"},
	"algorithm.entropy_target":  {Value: 0.0, Instead: "algorithm.entropy_coef stays as it is"},
	"analysis.confidence":       {Value: 0.95, Instead: "intervals are of 95 %"},
	"analysis.in_update":        {Value: false, Instead: "analysis.every = 1 measures the buckets of every step"},
	"analysis.statistics":       {Value: true, Instead: "the exact profile always has them"},
	"checkpoint.dtype":          {Value: "float32", Instead: "`gyre model convert --dtype bfloat16` makes smaller copies"},
	"components.buckets":        {Value: false, Instead: "components are measured over the whole batch"},
	"components.save_mib":       {Value: int64(1024), Instead: "components.save = \"projection\" makes smaller files"},
	"engine.draft_model":        {Value: "", Instead: "engine.speculation = \"auto\" proposes tokens by look-up"},
	"engine.prefix_cache":       {Value: true, Instead: "what sequences begin with is always shared"},
	"engine.speculative_tokens": {Value: int64(8), Instead: "at most 8 are proposed"},
	"envs.sampling":             {Instead: "all members of a group are sampled as [rollout] says"},
	"lora.plus":                 {Value: 1.0, Instead: "A and B have one learning rate"},
}

func interpret(given func(*Config) bool, name string, data []byte, overrides []string,
	checks []Check) (*Config, error) {
	document := settings.Parse(name, data)
	document.Removed = removed
	if err := document.Err(); err != nil {
		return nil, err
	}
	for _, text := range overrides {
		document.Override(text)
	}
	c := &Config{}
	document.Decode(c)
	c.usePreset(document)
	c.inheritValidation(document.Defined)
	c.Components.inheritNames(document.Keys)
	if n := c.Episodes(); n > 0 && !document.Defined("actor.mini_batch") {
		shares := (n + c.Actor.MiniBatch - 1) / c.Actor.MiniBatch
		if c.Adaptive() {
			shares = 1
		}
		c.Actor.MiniBatch = (n + shares - 1) / shares
	}
	if c.Run.ValidateEvery == 0 && !document.Defined("run.validate_first") {
		c.Run.ValidateFirst = false
	}
	if c.Critic.MiniBatch == 0 {
		c.Critic.MiniBatch = c.Actor.MiniBatch
	}
	c.Importance.usePreset(document.Defined)
	if slices.Contains(episodeLosses, c.Actor.Loss) && !document.Defined("actor.loss_aggregation") {
		c.Actor.LossAggregation = "seq-mean-token-mean"
	}
	c.useBaseDType()
	c.checkLoRA(document.Defined, document.Report)
	c.check(given != nil && given(c), document.Report)
	for _, check := range checks {
		check(c, document.Report)
	}
	c.ungrouped = nil
	if err := document.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

// Ungrouped tells a check whether nobody gave the groups of a validation source.
func (c *Config) Ungrouped(source int) bool { return c.ungrouped[source] }

// Note lets a check warn of what it has read.
func (c *Config) Note(lines ...string) { c.notes = append(c.notes, lines...) }

// NoteTraining is Note of what validations do not play.
func (c *Config) NoteTraining(lines ...string) { c.training = append(c.training, lines...) }

// Notes are those on what validations play.
func (c *Config) Notes() []string { return c.notes }

// inheritValidation completes the validation sources from the training sources.
func (c *Config) inheritValidation(defined func(path string) bool) {
	c.ungrouped = map[int]bool{}
	if len(c.Validation.Envs) == 0 {
		for _, e := range c.Envs {
			e.Groups, e.GroupSize = 512, 1
			c.ungrouped[len(c.Validation.Envs)] = true
			c.Validation.Envs = append(c.Validation.Envs, e)
		}
		return
	}
	for i := range c.Validation.Envs {
		e := &c.Validation.Envs[i]
		c.ungrouped[i] = !defined(fmt.Sprintf("validation.envs.%d.groups", i))
		if e.Tag == "" && i < len(c.Envs) {
			e.Tag = c.Envs[i].Tag
		}
		for _, training := range c.Envs {
			if training.Tag != e.Tag {
				continue
			}
			from, to := reflect.ValueOf(training), reflect.ValueOf(e).Elem()
			for f := range to.NumField() {
				key := to.Type().Field(f).Tag.Get("toml")
				if key == "tag" || key == "groups" || key == "group_size" ||
					defined(fmt.Sprintf("validation.envs.%d.%s", i, key)) {
					continue
				}
				to.Field(f).Set(from.Field(f))
			}
			break
		}
	}
}

// inheritNames names the weighted parts in the order in which the document weights them, which a map does not keep.
func (c *Components) inheritNames(written []toml.Key) {
	if len(c.Names) > 0 {
		return
	}
	for _, key := range written {
		if len(key) == 3 && key[0] == "components" && key[1] == "weights" {
			if _, weighted := c.Weights[key[2]]; weighted && !slices.Contains(c.Names, key[2]) {
				c.Names = append(c.Names, key[2])
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Weights)) { // given by an override
		if !slices.Contains(c.Names, name) {
			c.Names = append(c.Names, name)
		}
	}
}

// Resolved writes a configuration with every key, as a TOML file that Load reads back to the same configuration.
func Resolved(c *Config) ([]byte, error) {
	var out bytes.Buffer
	encoder := toml.NewEncoder(&out)
	encoder.Indent = ""
	if err := encoder.Encode(c); err != nil {
		return nil, fmt.Errorf("config: cannot write the resolved configuration: %w", err)
	}
	return out.Bytes(), nil
}

// Change is a key in which two configurations differ, with its values as text; From is empty for a key that is new,
// To for one that is gone. Step is the last step that a run did with the old one, where a resumption changed it.
type Change struct {
	Step int    `json:"step"`
	Key  string `json:"key"`
	From string `json:"from"`
	To   string `json:"to"`
}

// Trains reports whether the key bears on what is learned, and not only on what is kept and shown of it.
func (c Change) Trains() bool {
	table, key, _ := strings.Cut(c.Key, ".")
	return table != "checkpoint" && (table != "run" || strings.HasSuffix(key, "seed"))
}

func (c Change) String() string {
	switch {
	case c.From == "":
		return fmt.Sprintf("%s = %s is new", c.Key, c.To)
	case c.To == "":
		return fmt.Sprintf("%s = %s is gone", c.Key, c.From)
	}
	return fmt.Sprintf("%s = %s was %s", c.Key, c.To, c.From)
}

// Compare lists the keys in which two resolved configurations differ.
func Compare(before, after []byte) ([]Change, error) {
	old, err := Flatten(before)
	if err != nil {
		return nil, fmt.Errorf("earlier configuration: %w", err)
	}
	current, err := Flatten(after)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(old, func(key, value string) bool { // what the program does anyway
		gone, was := removed[key]
		return was && value == asText(gone.Value)
	})
	keys := maps.Clone(old)
	maps.Copy(keys, current)
	var list []Change
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if old[key] != current[key] {
			list = append(list, Change{Key: key, From: old[key], To: current[key]})
		}
	}
	return list, nil
}

// Flatten gives every value of a document by its dotted key, as text.
func Flatten(document []byte) (map[string]string, error) {
	raw := map[string]any{}
	if _, err := toml.Decode(string(document), &raw); err != nil {
		return nil, err
	}
	out := map[string]string{}
	var walk func(path string, value any)
	walk = func(path string, value any) {
		switch v := value.(type) {
		case map[string]any:
			for key, inner := range v {
				walk(strings.TrimPrefix(path+"."+key, "."), inner)
			}
		case []map[string]any:
			for i, inner := range v {
				walk(fmt.Sprintf("%s.%d", path, i), inner)
			}
		default:
			out[path] = asText(v)
		}
	}
	walk("", raw)
	return out, nil
}

func asText(value any) string {
	if text, is := value.(string); is {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprint(value)
}
