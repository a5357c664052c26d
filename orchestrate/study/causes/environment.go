package causes

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"gyre/orchestrate/study/whatif"
)

// brokenEnvironment tests each environment: whether it judges answers otherwise from some step on, and whether it calls
// agreed replies wrong which the others would call right.
func brokenEnvironment(h *History) (out []Finding) {
	known, tags := verdicts(h.Steps), h.tags()
	for _, tag := range tags {
		against, look := h.reversals(known, tag)
		change := shift(against, 1, fallen)
		f := Finding{Subject: tag, P: change.P}
		if change.P < 1 {
			f.Since = h.Steps[change.At].Number
			// later verdicts are of replies that the environment has taught since
			f.Effect = flatMean(against[change.At:min(change.At+doubt, len(against))]) - change.Before
			f.Evidence = fmt.Sprintf("%s: of answers whose verdict was known, %.0f %% got another, %.0f %% before", tag,
				100*change.After, 100*change.Before)
			f.Look = from(look, f.Since)
			f.Proof = h.withoutEnvironment(tag, f.Since)
		}
		out = append(out, f, h.unequalStarts(tag))
	}
	if len(tags) > 1 {
		for _, tag := range tags {
			out = append(out, h.wrongThroughout(tag))
		}
	}
	return out
}

// unequalStarts tests whether members of a group begin to start from different prompts: its reset is broken then. A
// group's start is one state by definition, but agents of other programs may word it by themselves from the first step.
func (h *History) unequalStarts(tag string) Finding {
	differ := func(group []Played) bool {
		return slices.ContainsFunc(group, func(p Played) bool { return p.Prompt != group[0].Prompt })
	}
	change := shift(h.groups(func(group []Played) (float64, bool) {
		return truth(differ(group)), group[0].Tag == tag && len(group) > 1
	}), 1, fallen)
	f := Finding{Subject: tag, P: change.P, Effect: change.After - change.Before}
	if f.P == 1 {
		return f
	}
	f.Since = h.Steps[change.At].Number
	f.Evidence = fmt.Sprintf("%s: the members of %.0f %% of the groups start from different prompts, %.0f %% before", tag,
		100*change.After, 100*change.Before)
	f.Proof = h.withoutEnvironment(tag, f.Since)
	for _, step := range h.Steps[change.At:] {
		for _, group := range step.Groups {
			if group[0].Tag == tag && differ(group) && len(f.Look) < mostLook {
				f.Look = append(f.Look, Place{step.Number, group[0].Index})
			}
		}
	}
	return f
}

// reversals tells of each answer that was known from an earlier group whether its verdict is another than at first.
func (h *History) reversals(known map[answer][]verdict, tag string) (Series, []Place) {
	place, s := map[int]int{}, make(Series, len(h.Steps))
	for i, step := range h.Steps {
		place[step.Number] = i
	}
	var look []Place
	for a, list := range known {
		if a.tag != tag {
			continue
		}
		for _, v := range list[1:] {
			other := v.score != list[0].score
			if v.place.Step > list[0].place.Step {
				s[place[v.place.Step]] = append(s[place[v.place.Step]], truth(other))
			}
			if other {
				look = append(look, v.place)
			}
		}
	}
	for i := range s { // the order of a map is no order
		slices.Sort(s[i])
	}
	slices.SortFunc(look, byPlace)
	return s, look
}

func byPlace(a, b Place) int { return 1_000_000*(a.Step-b.Step) + a.Episode - b.Episode }

func from(look []Place, step int) []Place {
	look = slices.DeleteFunc(slices.Clone(look), func(p Place) bool { return p.Step < step })
	return look[:min(mostLook, len(look))]
}

// withoutEnvironment leaves an environment out, or where it is the only one, lets the policy stand still: what falls
// then is not the policy.
func (h *History) withoutEnvironment(tag string, since int) *whatif.Question {
	if len(h.tags()) > 1 {
		return &whatif.Question{From: since - 1, Without: []string{"env=" + tag}}
	}
	return &whatif.Question{From: since - 1, With: []string{"actor.lr=0"}}
}

// turned is the p-value at which an environment counts as having begun to judge otherwise: Alarm over ten hypotheses.
const turned = Alarm / 10

// agreed is how much of a group must give the same reply for it to be the policy's answer.
const agreed = 0.75

// wrongThroughout compares how often replies on which a group agrees are right in an environment and in the others.
func (h *History) wrongThroughout(tag string) Finding {
	right := func(own bool) Series {
		return h.groups(func(group []Played) (float64, bool) {
			reply, share := majority(group)
			i := slices.IndexFunc(group, func(p Played) bool { return p.Reply == reply })
			return truth(group[i].Solved), group[i].Judged && share >= agreed && own == (group[i].Tag == tag)
		})
	}
	mine, others := right(true), right(false)
	p := apart(others, mine, 0.3)
	f := Finding{Subject: tag, P: p, Since: h.Steps[0].Number, Effect: flatMean(others) - flatMean(mine)}
	if p < 1 {
		f.Evidence = fmt.Sprintf("%s: %.0f %% of replies on which a group agrees are right, %.0f %% elsewhere", tag,
			100*flatMean(mine), 100*flatMean(others))
		f.Proof = h.withoutEnvironment(tag, f.Since)
		for _, step := range h.Steps {
			for _, group := range step.Groups {
				if _, share := majority(group); group[0].Tag == tag && share >= agreed && !group[0].Solved {
					f.Look = append(f.Look, Place{step.Number, group[0].Index})
				}
			}
		}
		f.Look = from(f.Look, 0)
	}
	return f
}

// apart is the p-value of the mean of high lying above that of low by more than margin, when values are dealt to the
// two within each step.
func apart(high, low Series, margin float64) float64 {
	difference := func(high, low Series) float64 { return flatMean(high) - flatMean(low) - margin }
	found := difference(high, low)
	if !(found > 0) {
		return 1
	}
	both, a, b := make(Series, len(high)), make(Series, len(high)), make(Series, len(high))
	for i := range high {
		both[i] = slices.Concat(high[i], low[i])
	}
	return chance(func(random *rand.Rand) bool {
		for i, values := range both {
			random.Shuffle(len(values), func(x, y int) { values[x], values[y] = values[y], values[x] })
			a[i], b[i] = values[:len(high[i])], values[len(high[i]):]
		}
		return difference(a, b) >= found
	})
}
