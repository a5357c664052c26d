package sweep

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gyre/internal/settings"
	"gyre/orchestrate/config"
)

// Condition is one setting of what is varied.
type Condition struct {
	Label     string
	Stage     int
	Overrides []string
	// Coordinates are the values on the axes, for figures; empty for a condition that is written out.
	Coordinates []string
	// Line is what its lines in the summary log begin with.
	Line string
}

// Folder is the condition's name in paths.
func (c Condition) Folder() string { return unsafeInPaths.ReplaceAllString(c.Label, "_") }

var unsafeInPaths = regexp.MustCompile(`[^A-Za-z0-9._=,+-]`)

// Stages is the number of stages.
func (s *Study) Stages() int {
	last := 1
	for _, a := range s.Axes {
		last = max(last, a.Stage)
	}
	for _, c := range s.Conditions {
		last = max(last, c.Stage)
	}
	return last
}

// Plan lists the conditions of a stage; start are the overrides of the condition to start from.
func (s *Study) Plan(stage int, start []string) ([]Condition, error) {
	out := s.conditions(stage, start)
	if s.Stages() > 1 {
		for i := range out {
			out[i].Label = fmt.Sprintf("stage%d,%s", stage, out[i].Label)
		}
	}
	return out, s.distinct(out)
}

// distinct refuses conditions that would share a folder.
func (s *Study) distinct(list []Condition) error {
	seen := map[string]string{}
	for _, c := range list {
		if other, ok := seen[c.Folder()]; ok {
			return fmt.Errorf("%w: %s: two conditions are named %q and %q", settings.ErrInvalid, s.file, other, c.Label)
		}
		seen[c.Folder()] = c.Label
	}
	return nil
}

// conditions of a stage: the grid of its axes, then those that are written out.
func (s *Study) conditions(stage int, start []string) []Condition {
	var groups [][]Axis // of axes that change together
	axes := 0
	for _, a := range s.Axes {
		if max(a.Stage, 1) != stage {
			continue
		}
		axes++
		i := slices.IndexFunc(groups, func(g []Axis) bool { return a.Zip != "" && g[0].Zip == a.Zip })
		if i < 0 {
			i, groups = len(groups), append(groups, nil)
		}
		groups[i] = append(groups[i], a)
	}
	var out []Condition
	if axes > 0 {
		out = []Condition{{Stage: stage, Overrides: start}}
	}
	for _, group := range groups {
		var values []Condition
		for i := range group[0].Values {
			var c Condition
			for _, a := range group {
				c = c.and(a.setting(i))
			}
			values = append(values, c)
		}
		out = grid(out, values)
	}
	for i := range out {
		if axes == 1 {
			_, out[i].Label, _ = strings.Cut(out[i].Label, "=")
		}
	}
	for _, c := range s.Conditions {
		if max(c.Stage, 1) == stage {
			label := cmp.Or(c.Label, strings.Join(c.At, ","))
			out = append(out, Condition{Label: label, Stage: stage, Overrides: slices.Concat(start, c.Set),
				Coordinates: c.At, Line: cmp.Or(strings.Join(c.At, separator), "condition="+label)})
		}
	}
	return out
}

// and is a condition with what another one changes.
func (c Condition) and(o Condition) Condition {
	return Condition{Stage: c.Stage, Label: strings.TrimPrefix(c.Label+","+o.Label, ","),
		Overrides:   slices.Concat(c.Overrides, o.Overrides),
		Coordinates: slices.Concat(c.Coordinates, o.Coordinates),
		Line:        strings.TrimPrefix(c.Line+separator+o.Line, separator)}
}

// grid is every condition of one list with every one of another.
func grid(list, others []Condition) (out []Condition) {
	for _, c := range list {
		for _, o := range others {
			out = append(out, c.and(o))
		}
	}
	return out
}

// setting is what the i-th value of an axis changes.
func (a Axis) setting(i int) Condition {
	name := cmp.Or(a.Name, a.Key[strings.LastIndex(a.Key, ".")+1:])
	label := valueText(a.Values[i])
	overrides := []string{a.Key + "=" + label}
	if named, ok := a.Named[label]; ok {
		overrides = named
	}
	if len(a.Labels) > 0 {
		label = a.Labels[i]
	}
	at := name + "=" + label
	c := Condition{Label: at, Overrides: overrides, Coordinates: []string{at}, Line: at}
	if len(a.Lines) > 0 {
		c.Line = a.Lines[i]
	}
	return c
}

// valueText writes a TOML value as an override has it.
func valueText(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case float64:
		text := strconv.FormatFloat(v, 'g', -1, 64)
		if !strings.ContainsAny(text, ".en") {
			text += ".0" // 1.0 stays 1.0, in labels too
		}
		return text
	case []any, map[string]any:
		data, _ := json.Marshal(v) // values that came from TOML can be written as JSON
		return string(data)
	}
	return fmt.Sprint(value)
}

// seeds of a run's random draws: those of the base, moved on by as much as never lets two seeds of a condition meet
// the same environments.
const envSeedStride = 10_000_019

// seedOverrides pair the conditions: seed n draws the same in all of them.
func seedOverrides(base *config.Config, seed int) []string {
	n := uint64(seed - 1)
	return []string{fmt.Sprintf("run.seed=%d", base.Run.Seed+n), fmt.Sprintf("run.env_seed=%d",
		base.Run.EnvSeed+int64(n)*envSeedStride)}
}
