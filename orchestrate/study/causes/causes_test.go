package causes

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
)

// noise is a series without a change: 4 groups in each of 12 steps.
func noise(random *rand.Rand) Series {
	s := make(Series, 12)
	for i := range s {
		for range 4 {
			s[i] = append(s[i], random.NormFloat64())
		}
	}
	return s
}

// Of series without a change, no more than a share p has a p-value of at most p; a change is found where it is.
func TestShift(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	const trials = 60
	small := 0
	for range trials {
		small += int(truth(shift(noise(random), 1, 0).P <= 0.1))
	}
	if p := binomialAtLeast(small, trials, 0.1); p < 0.001 {
		t.Errorf("%d of %d series without a change have a p-value of at most 0.1", small, trials)
	}
	for _, sign := range []float64{1, -1} {
		s := noise(random)
		for i := range s[7:] {
			for j := range s[7+i] {
				s[7+i][j] += sign * 4
			}
		}
		if got := shift(s, sign, 0); got.At != 7 || got.P > 0.001 || math.Abs(got.After-got.Before-sign*4) > 1.5 {
			t.Errorf("a change by %g after 7 steps: %+v", sign*4, got)
		}
		if got := shift(s, -sign, 0); got.P < 0.2 {
			t.Errorf("the same looked for in the other direction: %+v", got)
		}
		if got := shift(s, sign, 5); got.P < 0.05 {
			t.Errorf("the same, with a margin of 5: %+v", got)
		}
	}
	// a fall after a rise is a fall from the top
	var hill Series
	for _, level := range []float64{0, 0, 0, 1, 1, 1, 0.4, 0.4, 0.4, 0.4} {
		hill = append(hill, []float64{level + 0.01*random.NormFloat64(), level, level})
	}
	if got := shift(hill, -1, 0.1); got.At != 6 || math.Abs(got.Before-1) > 0.02 || got.P > 0.01 {
		t.Errorf("a fall after a rise: %+v", got)
	}
	for _, s := range []Series{nil, {{1}, {2}}, {{1}, {1}, {1}, {1}}, {nil, {1}, nil, {2}}} {
		if got := shift(s, 1, 0); got.P != 1 {
			t.Errorf("%v: %+v, expected nothing to be found", s, got)
		}
	}
}

// Longer histories are binned, and the step of a change is told to a bin.
func TestShiftOfALongHistory(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 2))
	s := make(Series, 400)
	for i := range s {
		for range 100 {
			s[i] = append(s[i], random.NormFloat64()+truth(i >= 250))
		}
	}
	if got := shift(s, 1, 0); got.At < 240 || got.At > 260 || got.P > 0.001 {
		t.Errorf("%+v, expected a change at 250", got)
	}
}

// R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm"); the bound of p = 0.05 is that of Sellke et al., table 1: 0.289.
func TestAdjustment(t *testing.T) {
	var all []Finding
	for _, p := range []float64{0.01, 0.04, 0.03, 0.005} {
		all = append(all, Finding{P: p})
	}
	for i, want := range []float64{0.03, 0.06, 0.06, 0.02} {
		if got := holm(all)[i]; math.Abs(got-want) > 1e-12 {
			t.Errorf("p-value %d: %g, want %g", i, got, want)
		}
	}
	for p, want := range map[float64]float64{0.05: 0.289, 0.01: 0.111, 0.001: 0.0184, 0.5: 0.5} {
		if got := nullAtLeast(p); math.Abs(got-want) > 0.001 {
			t.Errorf("the null hypothesis after p = %g: %g, want %g", p, got, want)
		}
	}
	if got := majorityOfSteps(5, 5); math.Abs(got-1.0/32) > 1e-12 {
		t.Errorf("5 of 5: %g", got)
	}
	if got := binomialAtLeast(2, 3, 0.5); math.Abs(got-0.5) > 1e-12 {
		t.Errorf("2 or more of 3: %g", got)
	}
}

// synthetic is a history of steps of 8 groups of 6, whose members answer and earn what play says.
func synthetic(steps int, play func(step, group, member int) Played, logged func(step int) map[string]any) *History {
	h := &History{Run: &rundir.Run{Dir: "runs/x", Name: "x"}}
	for n := 1; n <= steps; n++ {
		step := Step{Number: n}
		for g := range 8 {
			var group []Played
			for m := range 6 {
				p := play(n, g, m)
				p.Group, p.Index, p.Tag, p.Judged, p.Prompt = g, 6*g+m, "t", true, p.Prompt+uint64(1000*n+g)
				p.Whole = p.Prompt<<32 + p.Reply
				p.Score = truth(p.Solved)
				group = append(group, p)
			}
			step.Groups = append(step.Groups, group)
		}
		h.Steps = append(h.Steps, step)
		values := map[string]any{}
		if logged != nil {
			values = logged(n)
		}
		h.Run.Records = append(h.Run.Records, metrics.Record{Step: n, Values: values})
	}
	return h
}

// Faults that short runs of a tiny policy do not show are found in histories that are made up, from the step on that
// has them, and not in the same without.
func TestMadeUpHistories(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 4))
	own := func(_, g, m int) Played { // half of a group gives its prompt's own answer, which is right
		reply := uint64(g)
		if m%2 == 1 {
			reply = 100 + random.Uint64N(2)
		}
		return Played{Reply: reply, Solved: m%2 == 0}
	}
	for cause, h := range map[string]*History{
		"": synthetic(16, own, nil),
		"template collapse": synthetic(16, func(step, g, m int) Played {
			p := own(step, g, m)
			if step >= 9 {
				p.Reply = random.Uint64N(3)
			}
			return p
		}, nil),
		"entropy collapse": synthetic(16, func(step, g, m int) Played {
			p := own(step, g, m)
			if step >= 9 && g >= 4 {
				p = Played{Reply: uint64(g)}
			}
			return p
		}, nil),
		"sampler gap": synthetic(16, own, func(step int) map[string]any {
			return map[string]any{"rollout/sampler_equals_trainer": truth(step < 6),
				"rollout/logprob_gap_max": 1.5 * truth(step >= 6)}
		}),
		"broken environment": synthetic(16, func(step, g, m int) Played {
			p := own(step, g, m)
			if step >= 9 && m > 3 { // what the episode before has left
				p.Prompt = uint64(1e6 * m)
			}
			return p
		}, nil),
		"drift from the reference": synthetic(16, func(step, g, m int) Played {
			p := own(step, g, m)
			p.Solved = p.Solved && (step < 9 || g < 3)
			return p
		}, func(step int) map[string]any {
			return map[string]any{"actor/kl_loss": 0.01 + 0.001*random.Float64() + 0.5*truth(step >= 8)}
		}),
		"dead filter": synthetic(16, own, func(step int) map[string]any {
			return map[string]any{"rollout/empty_after_filter": truth(step > 10)}
		}),
		"broken judge": synthetic(16, func(step, g, m int) Played {
			p := own(step, g, m)
			p.Components = map[string]float64{"judge": truth(p.Solved)}
			if step >= 9 {
				p.Components["judge"] = 1 // it likes everything
			}
			if step >= 9 && g == 0 {
				p.Components["judge"] = 0
			}
			return p
		}, nil),
	} {
		found, tested := Rank(h)
		var names []string
		for _, s := range found {
			names = append(names, s.Cause)
			if s.Confidence < 0 || s.Confidence > 1 || s.Evidence == "" {
				t.Errorf("%s: %+v", cause, s)
			}
		}
		if tested < len(Detectors)-1 { // a run without components has no judge
			t.Errorf("%s: %d hypotheses of %d detectors", cause, tested, len(Detectors))
		}
		if cause == "" && len(found) > 0 || cause != "" && !slices.Contains(names, cause) {
			t.Errorf("%q: found %v", cause, names)
		}
		if i := slices.Index(names, cause); i >= 0 && (found[i].Since < 5 || found[i].Since > 11) {
			t.Errorf("%s since step %d", cause, found[i].Since)
		}
	}
}
