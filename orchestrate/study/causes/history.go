package causes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"

	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/run/rundir"
)

// ErrNothing means that a run has left nothing to compare.
var ErrNothing = errors.New("fewer than two steps with episodes (run.save_rollouts) or with metrics: nothing can be compared")

// mostSteps bounds how many files of episodes are read: of longer runs evenly spread ones are.
const mostSteps = 240

// Played is what detectors know of an episode.
type Played struct {
	Index, Group   int
	Tag, Row       string
	Prompt         uint64 // of the tokens before the first reply: equal where those are
	Reply          uint64 // of the sampled tokens
	Whole          uint64 // of all tokens
	Score          float64
	Solved, Judged bool
	Cut            bool
	Components     map[string]float64
}

// Step is the episodes of a training step, group by group.
type Step struct {
	Number int
	Groups [][]Played
}

// History is what a run's folder tells. It is for one goroutine.
type History struct {
	Run   *rundir.Run
	Steps []Step
	fall  *Shift // of success; nil until it is asked for
}

// Read reads the folder of a run.
func Read(ctx context.Context, run *rundir.Run) (*History, error) {
	h := &History{Run: run}
	files := slices.DeleteFunc(run.Rollouts(), func(f rundir.Stored) bool { return f.Kind != "step" })
	for i := range min(len(files), mostSteps) {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		f := files[i*len(files)/min(len(files), mostSteps)]
		step, err := readStep(f)
		if err != nil {
			return nil, err
		}
		h.Steps = append(h.Steps, step)
	}
	for _, record := range run.Records { // without episodes metrics must do
		if len(files) == 0 && record.Step > 0 {
			h.Steps = append(h.Steps, Step{Number: record.Step})
		}
	}
	if len(h.Steps) < 2 {
		return nil, fmt.Errorf("%s: %w", run.Dir, ErrNothing)
	}
	return h, nil
}

func readStep(f rundir.Stored) (Step, error) {
	step, place := Step{Number: f.Step}, map[int]int{}
	for e, err := range episode.Read(f.Path) {
		if err != nil {
			return step, err
		}
		at, known := place[e.Group]
		if !known {
			at = len(step.Groups)
			place[e.Group] = at
			step.Groups = append(step.Groups, nil)
		}
		step.Groups[at] = append(step.Groups[at], played(e))
	}
	return step, nil
}

func played(e *episode.Episode) Played {
	first := max(slices.Index(e.Mask, true), 0)
	var sampled []int32
	for i, own := range e.Mask {
		if own {
			sampled = append(sampled, e.IDs[i])
		}
	}
	p := Played{Index: e.Index, Group: e.Group, Tag: e.Tag, Row: e.Label, Prompt: hash(e.IDs[:first]),
		Reply: hash(sampled), Whole: hash(e.IDs), Score: e.Score, Solved: e.Success, Judged: !e.Unjudged,
		Cut: len(e.Cut) > 0, Components: map[string]float64{}}
	for name, rewards := range e.Components {
		p.Components[name] = episode.Sum(rewards)
	}
	return p
}

func hash(ids []int32) uint64 {
	bytes := make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		bytes = append(bytes, byte(id), byte(id>>8), byte(id>>16), byte(id>>24))
	}
	return xxhash.Sum64(bytes)
}

// Series is a number of each group of each step; groups for which it is not known are left out.
type Series [][]float64

// groups takes a number of every group.
func (h *History) groups(of func(group []Played) (float64, bool)) Series {
	s := make(Series, len(h.Steps))
	for i, step := range h.Steps {
		for _, group := range step.Groups {
			if v, ok := of(group); ok {
				s[i] = append(s[i], v)
			}
		}
	}
	return s
}

// mean takes the mean over a group's members of a number that some have.
func mean(of func(Played) (float64, bool)) func([]Played) (float64, bool) {
	return func(group []Played) (float64, bool) {
		sum, n := 0.0, 0
		for _, p := range group {
			if v, ok := of(p); ok {
				sum, n = sum+v, n+1
			}
		}
		return sum / float64(max(n, 1)), n > 0
	}
}

// success of the groups. Where nobody knows what a success is, there is none.
func (h *History) success() Series {
	return h.or("train/*/success", h.groups(mean(func(p Played) (float64, bool) { return truth(p.Solved), p.Judged })))
}

// score of the groups.
func (h *History) score() Series {
	return h.or("critic/score/mean", h.groups(mean(func(p Played) (float64, bool) { return p.Score, true })))
}

// or takes a metric in the place of a series that episodes do not tell.
func (h *History) or(pattern string, s Series) Series {
	if slices.ContainsFunc(s, func(values []float64) bool { return len(values) > 0 }) {
		return s
	}
	return h.metric(pattern)
}

// component of the reward.
func (h *History) component(name string) Series {
	return h.groups(mean(func(p Played) (float64, bool) { v, ok := p.Components[name]; return v, ok }))
}

// metric of the steps, the mean of those that a pattern names: one number each.
func (h *History) metric(pattern string) Series {
	s, at := make(Series, len(h.Steps)), map[int]int{}
	for i, step := range h.Steps {
		at[step.Number] = i
	}
	for _, p := range h.Run.Mean(pattern) {
		if i, known := at[p.Step]; known {
			s[i] = []float64{p.Value}
		}
	}
	return s
}

// tags are the environments, in order.
func (h *History) tags() (tags []string) {
	for _, step := range h.Steps {
		for _, group := range step.Groups {
			if !slices.Contains(tags, group[0].Tag) {
				tags = append(tags, group[0].Tag)
			}
		}
	}
	slices.Sort(tags)
	return tags
}

// components that episodes have, in order; those with a weight of 0 are not paid.
func (h *History) components() (all, paid []string) {
	for _, step := range h.Steps {
		for _, group := range step.Groups {
			for name := range group[0].Components {
				if !slices.Contains(all, name) {
					all = append(all, name)
				}
			}
		}
	}
	slices.Sort(all)
	for _, name := range all {
		if h.weight(name) != 0 {
			paid = append(paid, name)
		}
	}
	return all, paid
}

// weight of a component in the configuration; 0 where it has none.
func (h *History) weight(name string) float64 {
	if h.Run.Config != nil {
		for _, r := range h.Run.Config.Rewards {
			if r.Name == name {
				return r.Weight
			}
		}
	}
	return 0
}

// majority is the most frequent reply of a group with its share.
func majority(group []Played) (reply uint64, share float64) {
	count, most := map[uint64]int{}, 0
	for _, p := range group {
		count[p.Reply]++
		if n := count[p.Reply]; n > most {
			most, reply = n, p.Reply
		}
	}
	return reply, float64(most) / float64(len(group))
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
