package causes

import (
	"cmp"
	"math"
	"slices"

	"gyre/orchestrate/study/whatif"
)

// Finding is a hypothesis that a detector has tested.
type Finding struct {
	Cause    string
	Subject  string // the component, the environment or the metric that it is about
	Since    int    // the step with which it began
	Evidence string // in figures
	P        float64
	// Effect is how large it is, 0 to 1, on the scale that its detector names.
	Effect float64
	// Symptom says that other causes bring it about, too: beside one of those it counts half.
	Symptom bool
	Look    []Place
	// Proof is the other history in which the cause is absent; a nil one is not known.
	Proof *whatif.Question
}

// Place is an episode to look at.
type Place struct{ Step, Episode int }

// Detector tests hypotheses of one kind of cause.
type Detector struct {
	Cause, LooksAt, Source string
	// find returns a Finding of every hypothesis that it has tested.
	find func(h *History) []Finding
}

// Detectors are all of them, in the order of the documentation.
var Detectors = []Detector{
	{"broken judge", "equal replies of a group that earn differently; a component's correlation with success",
		"determinism of a grader", brokenJudge},
	{"broken environment", "replies that earned otherwise before; agreed replies that are wrong; groups with unequal starts",
		"memory of verdicts", brokenEnvironment},
	{"contradictory data", "equal replies to equal prompts that earn differently from group to group",
		"permutation within equal replies", contradictions},
	{"duplicated data", "groups of a step with equal prompts, against those of other steps", "permutation over steps",
		duplicates},
	{"reward hacking", "a paid component or the score rises while success falls",
		"Goodhart; Gao et al., arXiv 2210.10760", hacking},
	{"learning rate too high", "success falls after updates with a KL or a clipped share out of range",
		"Schulman et al., arXiv 1707.06347", learningRate},
	{"sampler gap", "steps at which sampler and trainer disagree", "rollout/sampler_equals_trainer", samplerGap},
	{"dead filter", "steps of which the filter keeps nothing", "RAGEN, arXiv 2504.20073", deadFilter},
	{"truncated replies", "share of replies that were cut off", "response_length/cut_ratio", truncated},
	{"entropy collapse", "groups that agree on failing replies", "Cui et al., arXiv 2505.22617",
		entropyCollapse},
	{"template collapse", "mutual information of prompt and reply", "RAGEN-2, arXiv 2604.06268", templateCollapse},
	{"drift from the reference", "kl_loss rises while success falls", "Gao et al., arXiv 2210.10760", drift},
}

// Alarm is the chance that a sound run is accused of anything.
const Alarm = 0.05

// explained is what a symptom counts beside a cause that began before it or with it, so many steps of doubt allowed.
const (
	explained = 0.5
	doubt     = 3
)

// Suspect is a finding that holds.
type Suspect struct {
	Finding
	Adjusted   float64 // p-value after Holm's procedure
	Confidence float64
}

// Rank runs the detectors and orders what holds by confidence. tested is how many hypotheses there were.
func Rank(h *History) (list []Suspect, tested int) {
	var all []Finding
	for _, d := range Detectors {
		for _, f := range d.find(h) {
			f.Cause = d.Cause
			all = append(all, f)
		}
	}
	adjusted := holm(all)
	for i, f := range all {
		if adjusted[i] <= Alarm {
			list = append(list, Suspect{f, adjusted[i], (1 - nullAtLeast(adjusted[i])) * min(max(f.Effect, 0), 1)})
		}
	}
	for i := range list {
		byOther := slices.ContainsFunc(list, func(s Suspect) bool { return !s.Symptom && s.Since <= list[i].Since+doubt })
		if list[i].Symptom && byOther {
			list[i].Confidence *= explained
		}
	}
	slices.SortStableFunc(list, func(a, b Suspect) int {
		return cmp.Or(cmp.Compare(b.Confidence, a.Confidence), cmp.Compare(a.Since, b.Since))
	})
	return oneEach(list), len(all)
}

// oneEach keeps the likeliest finding of each cause.
func oneEach(list []Suspect) (kept []Suspect) {
	for _, s := range list {
		if !slices.ContainsFunc(kept, func(k Suspect) bool { return k.Cause == s.Cause }) {
			kept = append(kept, s)
		}
	}
	return kept
}

// holm adjusts p-values so that rejecting those up to a level makes any false rejection no likelier than it (Holm,
// 1979).
func holm(all []Finding) []float64 {
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(all[a].P, all[b].P) })
	adjusted, most := make([]float64, len(all)), 0.0
	for rank, i := range order {
		most = max(most, min(1, all[i].P*float64(len(all)-rank)))
		adjusted[i] = most
	}
	return adjusted
}

// nullAtLeast is the least posterior probability of the null hypothesis at even odds that a p-value leaves: with
// B = −e·p·ln p the bound of Bayes factors (Sellke, Bayarri and Berger, 2001), B/(1 + B).
func nullAtLeast(p float64) float64 {
	if p >= 1/math.E {
		return 0.5
	}
	b := -math.E * p * math.Log(p)
	return b / (1 + b)
}
