package config

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"gyre/internal/nearest"
	"gyre/internal/settings"
	"gyre/orchestrate/loop/advantage"
)

// For is the rollout of one source's episodes.
func (r Rollout) For(e Env) Rollout {
	if e.Think != nil {
		r.Think = *e.Think
	}
	if e.ActionSeparator != "" {
		r.ActionSeparator = e.ActionSeparator
	}
	return r
}

// ReplyForms says, for every form that some source asks for, what replies look like and what becomes of them.
func (c *Config) ReplyForms() []string {
	var forms []string
	sources := map[string][]string{}
	for _, e := range c.Envs {
		form := c.Rollout.For(e).replyForm()
		if sources[form] == nil {
			forms = append(forms, form)
		}
		sources[form] = append(sources[form], e.Tag)
	}
	if len(forms) > 1 {
		for i, form := range forms {
			forms[i] = strings.Join(sources[form], ", ") + ": " + form
		}
	}
	return forms
}

func (r Rollout) replyForm() string {
	switch {
	case r.Replies == "action" && r.Think:
		return "the policy thinks and answers; the bare action takes the reply's place (rollout.replies = \"action\")"
	case r.Replies == "action":
		return "the policy answers without thinking; the bare action takes the reply's place (rollout.replies = " +
			"\"action\")"
	case r.Think:
		return "the policy thinks and answers"
	}
	return "the policy answers without thinking; replies are kept as sampled (rollout.replies = \"sampled\")"
}

// Constants are the keys of a that are numbers, the constants of its loss among them, and those that take names, as the
// position of theirs.
func (a Actor) Constants() map[string]float64 {
	all, values := map[string]float64{}, reflect.ValueOf(a)
	for i := range values.NumField() {
		switch value, tag := values.Field(i), values.Type().Field(i).Tag; {
		case value.CanFloat():
			all[tag.Get("toml")] = value.Float()
		case tag.Get("oneof") != "":
			all[tag.Get("toml")] = float64(slices.Index(strings.Split(tag.Get("oneof"), ","), value.String()))
		}
	}
	return all
}

// Estimation is how advantages are estimated.
func (a Algorithm) Estimation() advantage.Options {
	return advantage.Options{Advantage: a.Advantage, Gamma: a.Gamma, Lambda: a.Lambda, HighLevelGamma: a.HighLevelGamma,
		NormByStd:    a.NormByStd,
		SoftReweight: a.SoftReweight, LengthWeight: a.LengthWeight, ZeroTaskAdvantage: a.ZeroTaskAdvantage}
}

// estimator is the one that is named; the tag of Algorithm.Advantage has let no other pass.
func (a Algorithm) estimator() advantage.Estimator {
	if e := advantage.Find(a.Advantage); e != nil {
		return *e
	}
	return advantage.Estimator{}
}

// UsesCritic reports whether the advantage estimator needs a value network.
func (a Algorithm) UsesCritic() bool { return a.estimator().Critic }

// UsesGroups reports whether episodes are compared with the others of their group.
func (a Algorithm) UsesGroups() bool { return a.estimator().Groups }

// UsesEnergies reports whether the advantage estimator weighs tokens by their distributions' squared norms.
func (a Algorithm) UsesEnergies() bool { return a.estimator().Energies }

// ComparesEpisodes reports whether all sampled tokens of an episode get the advantage of its score.
func (a Algorithm) ComparesEpisodes() bool { return a.estimator().Episodes }

// Separate reports whether gradients are analysed on a batch of its own: one of another shape than the training batch.
func (c *Config) Separate() bool {
	a := c.Analysis
	return a.Groups != 0 && a.Groups != GroupsOf(c.Envs) ||
		slices.ContainsFunc(c.Envs, func(e Env) bool { return a.GroupSize != 0 && a.GroupSize != e.GroupSize })
}

// Episodes is the number of episodes of a training step.
func (c *Config) Episodes() int { return EpisodesOf(c.Envs) }

// EpisodesOf counts the episodes of some sources.
func EpisodesOf(sources []Env) (n int) {
	for _, e := range sources {
		n += e.Groups * e.GroupSize
	}
	return n
}

// GroupsOf counts the groups of some sources.
func GroupsOf(sources []Env) (n int) {
	for _, e := range sources {
		n += e.Groups
	}
	return n
}

// AtOnce is the most episodes that a run plays together: those of a step, of a validation or of a separate analysis.
func (c *Config) AtOnce() int {
	most := c.Episodes()
	if c.Run.ValidateFirst || c.Run.ValidateEvery > 0 {
		most = max(most, EpisodesOf(c.Validation.Envs))
	}
	if c.Analysis.Enabled && c.Separate() {
		for _, e := range c.Envs {
			most = max(most, cmp.Or(c.Analysis.Groups, GroupsOf(c.Envs))*cmp.Or(c.Analysis.GroupSize, e.GroupSize))
		}
	}
	return most
}

// Filters reports whether the filter may leave groups out.
func (c *Config) Filters() bool {
	f := c.Filter
	return f.Strategy != "none" && !(f.Strategy == "top_p" && f.Value >= 1 && f.IncludeZero)
}

// singleMember returns the first training source whose groups have one member.
func (c *Config) singleMember() (int, bool) {
	i := slices.IndexFunc(c.Envs, func(e Env) bool { return e.GroupSize == 1 })
	return i, i >= 0
}

// loggers are the names that run.loggers takes.
var loggers = []string{"jsonl", "tensorboard", "wandb"}

// Logger is a place where metrics go: one with a name, or a command that is started and reads them from its standard
// input.
type Logger struct {
	Name    string   `toml:"name"`
	Command []string `toml:"command"`
}

var _ settings.Decoder = (*Logger)(nil)

// DecodeSetting reads a name, or a table with a command.
func (l *Logger) DecodeSetting(value any) error {
	switch v := value.(type) {
	case string:
		if !slices.Contains(loggers, v) {
			return fmt.Errorf("expected one of %s, or { command = [\"PROGRAM\", …] }; got %q%s",
				strings.Join(loggers, ", "), v, nearest.Hint(v, loggers))
		}
		l.Name = v
		return nil
	case map[string]any:
		words, ok := v["command"].([]any)
		for _, word := range words {
			text, isText := word.(string)
			l.Command, ok = append(l.Command, text), ok && isText && text != ""
		}
		if ok && len(words) > 0 && len(v) == 1 {
			return nil
		}
	}
	return errors.New(`expected the name of a logger, or { command = ["PROGRAM", "ARGUMENT", …] }`)
}

// MarshalTOML writes what DecodeSetting reads.
func (l Logger) MarshalTOML() ([]byte, error) {
	if l.Name != "" {
		return fmt.Appendf(nil, "%q", l.Name), nil
	}
	list, err := toml.Marshal(map[string]any{"command": l.Command})
	return fmt.Appendf(nil, "{ %s }", strings.TrimSpace(string(list))), err
}

// Logs reports whether a logger of a name is among the run's.
func (r Run) Logs(name string) bool {
	return slices.ContainsFunc(r.Loggers, func(l Logger) bool { return l.Name == name })
}

// RemoteReference tells whether the KL reference is a server's.
func (m Model) RemoteReference() bool {
	return strings.HasPrefix(m.Reference, "http://") || strings.HasPrefix(m.Reference, "https://")
}
