package causes

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat/distuv"

	"gyre/orchestrate/study/whatif"
)

// The ranges that docs/metrics.md gives for a sound update.
const (
	mostKL   = 0.05
	mostClip = 0.3
)

// sound is the share, of steps that the filter empties and of replies that are cut off, that a sound run may have.
const sound = 0.1

// binomialAtLeast is the chance of so many hits or more in n trials.
func binomialAtLeast(hits, n int, chance float64) float64 {
	if hits == 0 {
		return 1
	}
	return distuv.Binomial{N: float64(n), P: chance}.Survival(float64(hits) - 1)
}

// learningRate tests two ways whether updates were too large: success falls shortly after one that left its range, or
// after the KL of updates jumped.
func learningRate(h *History) []Finding {
	down := h.falls()
	if down.P == 1 {
		return []Finding{{P: 1}, {P: 1}}
	}
	found := []Finding{h.outOfRange(down), h.larger(down)}
	for i := range found {
		f := &found[i]
		if f.P == 1 {
			continue
		}
		f.Evidence += fmt.Sprintf(", then success %.0f %% from %.0f %%", 100*down.After, 100*down.Before)
		f.Look = h.lookFailed(h.Steps[down.At].Number)
		if c := h.Run.Config; c != nil {
			f.Proof = &whatif.Question{From: f.Since - 1, With: []string{fmt.Sprintf("actor.lr=%g", c.Actor.LR/10)}}
		}
	}
	return found
}

// outOfRange looks for an update out of its range within the doubt before a fall.
func (h *History) outOfRange(down Shift) Finding {
	f, at := Finding{P: 1}, h.Steps[down.At].Number
	for _, key := range []struct {
		name string
		most float64
	}{{"actor/ppo_kl", mostKL}, {"actor/pg_clipfrac", mostClip}} {
		for _, point := range h.Run.Series(key.name) {
			v := math.Abs(point.Value)
			if point.Step < at-doubt || point.Step > at || v <= key.most {
				continue
			}
			if excess := math.Log10(v/key.most) + 0.5; excess > f.Effect {
				f.P, f.Effect, f.Since = down.P, excess, point.Step
				f.Evidence = fmt.Sprintf("%s %.3g at step %d (sound: below %.2g)", key.name, v, point.Step, key.most)
			}
		}
	}
	return f
}

// larger tests whether the KL of updates became three times as large or more before a fall; a hundredfold is an effect
// of 1.
func (h *History) larger(down Shift) Finding {
	kl := h.metric("actor/ppo_kl")
	for i := range kl {
		for j, v := range kl[i] {
			kl[i][j] = math.Log(math.Abs(v) + 1e-12)
		}
	}
	up := shift(kl, 1, math.Log(3))
	f := Finding{P: max(up.P, down.P), Effect: (up.After - up.Before) / math.Log(100)}
	if f.P == 1 || up.At > down.At {
		f.P = 1
		return f
	}
	f.Since = h.Steps[up.At].Number
	f.Evidence = fmt.Sprintf("|actor/ppo_kl| typically %.2g from %.2g", math.Exp(up.After), math.Exp(up.Before))
	return f
}

// samplerGap tests whether sampler and trainer disagree at most steps since they first did.
func samplerGap(h *History) []Finding {
	f, apart, since := Finding{P: 1}, 0, 0
	for _, p := range h.Run.Series("rollout/sampler_equals_trainer") {
		if since == 0 && p.Value == 0 {
			since = p.Step
		}
		if since > 0 && p.Value == 0 {
			apart++
		}
	}
	if since == 0 {
		return []Finding{f}
	}
	most := 0.0
	for _, p := range h.Run.Series("rollout/logprob_gap_max") {
		most = max(most, p.Value)
	}
	f.P, f.Since = majorityOfSteps(apart, apart), since
	f.Effect = math.Min(1, most) // nats: a factor of e in a token's ratio
	f.Evidence = fmt.Sprintf("sampler and trainer differ at %d steps, by up to %.2g nats", apart, most)
	f.Proof = &whatif.Question{From: since - 1, With: []string{"importance.correction=truncate"}}
	return []Finding{f}
}

// deadFilter tests whether the filter keeps nothing at more than a tenth of the steps after it first did not.
func deadFilter(h *History) []Finding {
	f, empty, steps, since := Finding{P: 1, Symptom: true}, 0, 0, 0
	for _, p := range h.Run.Series("rollout/empty_after_filter") {
		if since == 0 && p.Value == 1 {
			since = p.Step
		}
		if since > 0 {
			steps++
			empty += int(truth(p.Value == 1))
		}
	}
	if since == 0 {
		return []Finding{f}
	}
	f.P, f.Since, f.Effect = binomialAtLeast(empty-1, steps-1, sound), since, float64(empty)/float64(steps)
	f.Evidence = fmt.Sprintf("the filter kept no group in %d of %d steps", empty, steps)
	f.Proof = &whatif.Question{From: since - 1, With: []string{"filter.strategy=none"}}
	return []Finding{f}
}

// truncated tests whether more than a tenth of the replies are cut off at most steps since that began.
func truncated(h *History) []Finding {
	f, over, steps, first := Finding{P: 1}, 0, 0, -1
	cut := h.groups(mean(func(p Played) (float64, bool) { return truth(p.Cut), true }))
	for i := range cut {
		long := len(cut[i]) > 0 && flatMean(cut[i:i+1]) > sound
		if first < 0 && long {
			first = i
		}
		if first >= 0 && len(cut[i]) > 0 {
			steps++
			over += int(truth(long))
		}
	}
	if first < 0 {
		return []Finding{f}
	}
	share := flatMean(cut[first:])
	f.P, f.Since, f.Effect = majorityOfSteps(over, steps), h.Steps[first].Number, 2*share
	f.Symptom = first > 0 // replies that grow are cut off because something made them grow
	f.Evidence = fmt.Sprintf("%.0f %% of the replies are cut off (sound: near 0)", 100*share)
	for _, step := range h.Steps[first:] {
		for _, group := range step.Groups {
			for _, p := range group {
				if p.Cut && len(f.Look) < mostLook {
					f.Look = append(f.Look, Place{step.Number, p.Index})
				}
			}
		}
	}
	if c := h.Run.Config; c != nil {
		f.Proof = &whatif.Question{From: f.Since - 1,
			With: []string{fmt.Sprintf("rollout.max_tokens=%d", 4*c.Rollout.MaxTokens)}}
	}
	return []Finding{f}
}
