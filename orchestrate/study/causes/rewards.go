package causes

import (
	"cmp"
	"fmt"
	"slices"

	"gonum.org/v1/gonum/stat"

	"gyre/internal/statistics"
	"gyre/orchestrate/study/whatif"
)

// fallen is the fall of success, in shares, that is worth a cause: smaller ones come and go in sound runs.
const fallen = 0.1

// brokenJudge tests each component of the reward: whether equal replies to one prompt begin to earn differently, and
// whether it loses its correlation with success.
func brokenJudge(h *History) (out []Finding) {
	all, _ := h.components()
	for _, name := range all {
		score := func(p Played) float64 { return p.Components[name] }
		change := shift(h.groups(func(group []Played) (float64, bool) { return unequal(group, score) }), 1, 0.02)
		f := Finding{Subject: name, P: change.P, Effect: 2 * (change.After - change.Before)}
		if change.P < 1 {
			f.Since = h.Steps[change.At].Number
			f.Evidence = fmt.Sprintf("%s: %.0f %% of equal replies of a group are scored differently, %.0f %% before", name,
				100*change.After, 100*change.Before)
			f.Look, f.Proof = h.lookUnequal(f.Since, score), h.unpaid(name, f.Since)
		}
		out = append(out, f, h.unrelated(name))
	}
	return out
}

// unequal is the share of pairs of equal replies of a group that are scored differently.
func unequal(group []Played, score func(Played) float64) (share float64, known bool) {
	pairs, differ := 0, 0
	for i, a := range group {
		for _, b := range group[:i] {
			if a.Whole == b.Whole {
				pairs++
				differ += int(truth(score(a) != score(b)))
			}
		}
	}
	return float64(differ) / float64(max(pairs, 1)), pairs > 0
}

func (h *History) lookUnequal(since int, score func(Played) float64) (look []Place) {
	for _, step := range h.Steps {
		for _, group := range step.Groups {
			for i, a := range group {
				j := slices.IndexFunc(group[:i], func(b Played) bool { return a.Whole == b.Whole && score(a) != score(b) })
				if step.Number >= since && j >= 0 && len(look) < mostLook {
					look = append(look, Place{step.Number, group[j].Index}, Place{step.Number, a.Index})
				}
			}
		}
	}
	return look[:min(mostLook, len(look))]
}

// unrelated tests whether a component's correlation with success over a step's episodes falls from at least a half.
func (h *History) unrelated(name string) Finding {
	s := make(Series, len(h.Steps))
	for i, step := range h.Steps {
		var x, y []float64
		for _, p := range slices.Concat(step.Groups...) {
			if v, ok := p.Components[name]; ok && p.Judged {
				x, y = append(x, v), append(y, truth(p.Solved))
			}
		}
		if len(x) > 2 && statistics.PopulationDeviation(x) > 0 && statistics.PopulationDeviation(y) > 0 {
			s[i] = []float64{stat.Correlation(x, y, nil)}
		}
	}
	change := shift(s, -1, 0.2)
	f := Finding{Subject: name, P: change.P, Effect: change.Before - change.After}
	if !(change.Before >= 0.5) {
		f.P = 1
		return f
	}
	f.Since = h.Steps[change.At].Number
	f.Evidence = fmt.Sprintf("%s: correlation with success %.2f, %.2f before", name, change.After, change.Before)
	f.Proof = h.unpaid(name, f.Since)
	return f
}

// unpaid takes a component's weight away; where no other has one, success is paid in its place.
func (h *History) unpaid(name string, since int) *whatif.Question {
	if h.weight(name) == 0 {
		return nil
	}
	q := &whatif.Question{From: since - 1, Rewards: []string{name + "=0"}}
	if _, paid := h.components(); len(paid) == 1 {
		for _, r := range h.Run.Config.Rewards {
			if r.Name != name && r.Weight == 0 {
				q.Rewards = append(q.Rewards, fmt.Sprintf("%s=%g", r.Name, h.weight(name)))
				return q
			}
		}
	}
	return q
}

// falls is the clearest fall of success in training.
func (h *History) falls() Shift {
	if h.fall == nil {
		h.fall = new(shift(h.success(), -1, fallen))
	}
	return *h.fall
}

// hacking tests whether a paid component, or without any the score, rises while success falls.
func hacking(h *History) (out []Finding) {
	down := h.falls()
	_, paid := h.components()
	score := h.score()
	for _, name := range append(paid, "") {
		rising, sign := score, 1.0
		if name != "" {
			rising = h.component(name)
			if h.weight(name) < 0 {
				sign = -1
			}
		}
		up := shift(rising, sign, 0)
		f := Finding{Subject: name, P: max(up.P, down.P), Effect: 2 * (down.Before - down.After)}
		if f.P < 1 && !(paysSince(score, down.At, 1) && paysSince(rising, down.At, sign)) { // what does not pay is no hack
			f.P = 1
		}
		if f.P < 1 {
			f.Since = h.Steps[min(up.At, down.At)].Number
			f.Evidence = fmt.Sprintf("%s %.3g from %.3g, success %.0f %% from %.0f %%", cmp.Or(name, "the score"), up.After,
				up.Before, 100*down.After, 100*down.Before)
			f.Look = h.lookPaid(h.Steps[down.At].Number, name)
			if name != "" {
				f.Proof = h.unpaid(name, f.Since)
			}
		}
		out = append(out, f)
	}
	return out
}

// paysSince reports whether a series is higher from a step on than before it, or lower for sign −1.
func paysSince(s Series, at int, sign float64) bool {
	return sign*(flatMean(s[at:])-flatMean(s[:at])) > 0
}

// lookPaid are failed episodes from a step on that earned the most.
func (h *History) lookPaid(since int, name string) (look []Place) {
	for _, step := range h.Steps {
		best, at := 0.0, -1
		for _, p := range slices.Concat(step.Groups...) {
			v := p.Score
			if name != "" {
				v = p.Components[name]
			}
			if !p.Solved && (at < 0 || v > best) {
				best, at = v, p.Index
			}
		}
		if step.Number >= since && at >= 0 && len(look) < mostLook {
			look = append(look, Place{step.Number, at})
		}
	}
	return look
}
