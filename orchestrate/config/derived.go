package config

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

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

// Constants are the keys of a that are numbers, the constants of its loss among them.
func (a Actor) Constants() map[string]float64 {
	all, values := map[string]float64{}, reflect.ValueOf(a)
	for i := range values.NumField() {
		if values.Field(i).CanFloat() {
			all[values.Type().Field(i).Tag.Get("toml")] = values.Field(i).Float()
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
