package causes

import (
	"fmt"
	"math"

	"gyre/orchestrate/study/whatif"
)

// entropyCollapse tests whether groups begin to agree on failing replies, while success does not rise.
func entropyCollapse(h *History) []Finding {
	up := shift(h.groups(func(group []Played) (float64, bool) {
		_, share := majority(group)
		solved := 0
		for _, p := range group {
			solved += int(truth(p.Solved))
		}
		return truth(share >= agreed && 2*solved < len(group)), len(group) > 1
	}), 1, fallen)
	f := Finding{P: up.P, Effect: up.After - up.Before, Symptom: true}
	if up.P == 1 {
		return []Finding{f}
	}
	success := h.success()
	before, after := flatMean(success[:up.At]), flatMean(success[up.At:])
	if after > before { // sure of itself, and right
		f.P = 1
	}
	f.Since = h.Steps[up.At].Number
	f.Evidence = fmt.Sprintf("%.0f %% of groups agree on a failing reply, %.0f %% before; success %.0f %% from %.0f %%",
		100*up.After, 100*up.Before, 100*after, 100*before)
	f.Look = h.lookFailed(f.Since)
	coefficient := 0.01
	if c := h.Run.Config; c != nil {
		coefficient = max(coefficient, 10*c.Algorithm.EntropyCoef)
	}
	f.Proof = &whatif.Question{From: f.Since - 1, With: []string{fmt.Sprintf("algorithm.entropy_coef=%g", coefficient)}}
	return []Finding{f}
}

// lookFailed are failed episodes, one of a step.
func (h *History) lookFailed(since int) []Place { return h.lookPaid(since, "") }

// templateCollapse tests whether replies lose what they say of their prompts, by the run's own measurement where it has
// one, else by counting equal replies.
func templateCollapse(h *History) []Finding {
	s, what := h.metric("collapse_first_turn_sample/mi_estimate"), "collapse_first_turn_sample/mi_estimate"
	if len(bin(s, 1).first) < 3 {
		what = "information of equal replies"
		for i, step := range h.Steps {
			if v, ok := information(step.Groups); ok {
				s[i] = []float64{v}
			}
		}
	}
	down := shift(s, -1, 0)
	f := Finding{P: down.P, Effect: (down.Before - down.After) / down.Before, Symptom: true}
	if down.P == 1 || !(down.Before > 0) {
		f.P = 1
		return []Finding{f}
	}
	f.Since = h.Steps[down.At].Number
	f.Evidence = fmt.Sprintf("%s %.2f nats, %.2f before", what, down.After, down.Before)
	f.Look = h.lookFailed(f.Since)
	f.Proof = &whatif.Question{From: f.Since - 1, With: []string{"algorithm.kl_coef=0.01"}}
	return []Finding{f}
}

// information is the mutual information of group and reply, in nats, of equal replies: entropy of all less the mean
// within groups, each with the correction of Miller and Madow for its number of distinct replies. Where hardly any two
// replies are equal nothing can be said.
func information(groups [][]Played) (nats float64, known bool) {
	all, within, n, distinct := map[uint64]int{}, 0.0, 0, 0
	for _, group := range groups {
		own := map[uint64]int{}
		for _, p := range group {
			own[p.Reply]++
			all[p.Reply]++
		}
		within += float64(len(group)) * entropy(own, len(group))
		n, distinct = n+len(group), distinct+len(own)
	}
	return entropy(all, n) - within/float64(max(n, 1)), len(groups) > 1 && 2*distinct < n
}

func entropy(count map[uint64]int, n int) (nats float64) {
	for _, k := range count {
		p := float64(k) / float64(n)
		nats -= p * math.Log(p)
	}
	return nats + float64(len(count)-1)/float64(2*n)
}

// drift tests whether the policy leaves its reference while success falls.
func drift(h *History) []Finding {
	down, up := h.falls(), shift(h.metric("actor/kl_loss"), 1, 0)
	f := Finding{P: max(down.P, up.P), Effect: down.Before - down.After, Symptom: true}
	if f.P == 1 {
		return []Finding{f}
	}
	f.Since = h.Steps[min(up.At, down.At)].Number
	f.Evidence = fmt.Sprintf("actor/kl_loss %.3g from %.3g, success %.0f %% from %.0f %%", up.After, up.Before,
		100*down.After, 100*down.Before)
	f.Look = h.lookFailed(f.Since)
	if c := h.Run.Config; c != nil && c.Algorithm.KLCoef > 0 {
		f.Proof = &whatif.Question{From: f.Since - 1,
			With: []string{fmt.Sprintf("algorithm.kl_coef=%g", 10*c.Algorithm.KLCoef)}}
	}
	return []Finding{f}
}
