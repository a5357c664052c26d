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

// estimator is what an advantage estimator needs of a run.
type estimator struct {
	critic, groups, energies, episodes, states, divides bool
	unsized                                             bool // its expected gradient depends on no group's size
}

// estimators are those of package advantage, a test of which compares both tables.
var estimators = map[string]estimator{
	"gae":                    {critic: true},
	"bi_level_gae":           {critic: true},
	"grpo":                   {groups: true, episodes: true, divides: true},
	"rloo":                   {groups: true, episodes: true, unsized: true},
	"reinforce_pp":           {},
	"reinforce_pp_baseline":  {groups: true, episodes: true},
	"brpo":                   {episodes: true, divides: true},
	"gdpo":                   {groups: true, episodes: true, divides: true},
	"optimal_token_baseline": {groups: true, energies: true},
	"reinforce":              {},
	"james_stein":            {groups: true, episodes: true, unsized: true},
	"gigpo":                  {groups: true, states: true, divides: true},
	"mt_grpo":                {groups: true, divides: true},
	"turn_grpo":              {groups: true, divides: true},
	"turn_rloo":              {groups: true, unsized: true},
	"optimal_turn_baseline":  {groups: true, energies: true, unsized: true},
}

// UsesCritic reports whether the advantage estimator needs a value network.
func (a Algorithm) UsesCritic() bool { return estimators[a.Advantage].critic }

// UsesGroups reports whether episodes are compared with the others of their group.
func (a Algorithm) UsesGroups() bool { return estimators[a.Advantage].groups }

// UsesEnergies reports whether the advantage estimator weighs tokens by their distributions' squared norms.
func (a Algorithm) UsesEnergies() bool { return estimators[a.Advantage].energies }

// UsesStates reports whether the advantage estimator compares turns that began in the same state.
func (a Algorithm) UsesStates() bool { return estimators[a.Advantage].states }

// Divides reports whether the advantage estimator divides by a deviation where norm_by_std says so.
func (a Algorithm) Divides() bool { return estimators[a.Advantage].divides }

// ComparesEpisodes reports whether all sampled tokens of an episode get the advantage of its score.
func (a Algorithm) ComparesEpisodes() bool { return estimators[a.Advantage].episodes }

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

// RemoteReference tells whether the KL reference is a server's.
func (m Model) RemoteReference() bool {
	return strings.HasPrefix(m.Reference, "http://") || strings.HasPrefix(m.Reference, "https://")
}
