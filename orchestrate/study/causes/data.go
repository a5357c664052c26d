package causes

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"

	"gyre/orchestrate/study/whatif"
)

const (
	mostLook = 4 // episodes that a finding names
	mostRows = 5 // rows that its proof leaves out
)

// answer is a whole episode in an environment: what a deterministic one scores equally.
type answer struct {
	tag   string
	whole uint64
}

// verdict is what an answer earned in one group.
type verdict struct {
	place Place
	row   string
	group int
	score float64
}

// grade is what says whether an episode was right: its success, or its score where nobody knows that.
func grade(p Played) float64 {
	if p.Judged {
		return truth(p.Solved)
	}
	return p.Score
}

// verdicts are those of each answer in some steps, in their order, one of each group whose members agree.
func verdicts(steps []Step) map[answer][]verdict {
	out := map[answer][]verdict{}
	for _, step := range steps {
		for _, group := range step.Groups {
			inside := map[answer]verdict{}
			unsure := map[answer]bool{}
			for _, p := range group {
				a := answer{p.Tag, p.Whole}
				if before, known := inside[a]; known && before.score != grade(p) {
					unsure[a] = true
				}
				inside[a] = verdict{Place{step.Number, p.Index}, p.Row, p.Group, grade(p)}
			}
			for a, v := range inside {
				if !unsure[a] {
					out[a] = append(out[a], v)
				}
			}
		}
	}
	return out
}

// contradictions tests whether the verdicts of an answer depend on the group that gives it: a row with another gold
// than its neighbours' does that, chance within a group does not. One verdict of each group is taken, so that groups
// that judge by lot are not counted (verdicts leaves them out).
func contradictions(h *History) []Finding {
	known, against, rows, look := 0, 0, map[string]int{}, []Place(nil)
	unsure, pairs := h.unsure()
	for list := range h.eras() {
		right := 0
		for _, v := range list {
			right += int(truth(v.score > 0))
		}
		minority := truth(2*right < len(list))
		for _, v := range list {
			if len(list) > 1 {
				known++
			}
			if right > 0 && right < len(list) && truth(v.score > 0) == minority {
				against++
				rows[v.row]++
				look = append(look, v.place)
			}
		}
	}
	if known == 0 {
		return []Finding{{P: 1}}
	}
	// in a group equal answers have at most so many different verdicts: what is beyond that comes of the rows
	chance := float64(unsure+1) / float64(pairs+2)
	f := Finding{P: binomialAtLeast(against, known, max(chance, 0.02)), Since: h.Steps[0].Number,
		Effect: min(1, 4*float64(against)/float64(known)), Symptom: true} // of an environment that judges by lot
	slices.SortFunc(look, byPlace)
	f.Look = from(look, 0)
	if len(f.Look) > 0 {
		f.Since = f.Look[0].Step
	}
	f.Evidence = fmt.Sprintf("%d of %d verdicts contradict what the same reply to the same prompt earned in most other "+
		"groups", against, known)
	f.Proof = &whatif.Question{From: 0}
	names := worst(rows)
	for _, row := range names[:min(mostRows, len(names))] {
		f.Proof.Without = append(f.Proof.Without, "row="+row)
	}
	if len(names) == 0 {
		f.Proof = nil
	}
	return []Finding{f}
}

// eras yields the verdicts of each answer, those before its environment began to judge otherwise apart from those after
// it: what that change contradicts is not the data's.
func (h *History) eras() iter.Seq[[]verdict] {
	return func(yield func([]verdict) bool) {
		all, ends := verdicts(h.Steps), map[string]int{}
		for _, tag := range h.tags() {
			against, _ := h.reversals(all, tag)
			if change := shift(against, 1, fallen); change.P <= turned {
				ends[tag] = h.Steps[change.At].Number
			}
		}
		for a, list := range all {
			at := 0
			for at < len(list) && list[at].place.Step < ends[a.tag] {
				at++
			}
			for _, era := range [][]verdict{list[:at], list[at:]} {
				if len(era) > 0 && !yield(era) {
					return
				}
			}
		}
	}
}

// worst are the named rows, those with most contradictions first.
func worst(rows map[string]int) (names []string) {
	for row := range rows {
		if row != "" {
			names = append(names, row)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if rows[a] != rows[b] {
			return rows[b] - rows[a]
		}
		return slices.Compare([]byte(a), []byte(b))
	})
	return names
}

// unsure counts, of the answers that a group gives twice or more, those with two verdicts.
func (h *History) unsure() (unsure, pairs int) {
	for _, step := range h.Steps {
		for _, group := range step.Groups {
			seen, two := map[uint64]float64{}, map[uint64]bool{}
			for _, p := range group {
				before, known := seen[p.Whole]
				if known {
					two[p.Whole] = two[p.Whole] || before != grade(p)
				}
				seen[p.Whole] = grade(p)
			}
			pairs += len(two)
			for _, differs := range two {
				unsure += int(truth(differs))
			}
		}
	}
	return unsure, pairs
}

// duplicates tests whether groups of one step have equal prompts more often than groups of different steps.
func duplicates(h *History) []Finding {
	var prompts []uint64
	var sizes []int
	for _, step := range h.Steps {
		sizes = append(sizes, len(step.Groups))
		for _, group := range step.Groups {
			prompts = append(prompts, group[0].Prompt)
		}
	}
	copies := func() (n int) {
		at := 0
		for _, size := range sizes {
			seen := map[uint64]bool{}
			for _, p := range prompts[at : at+size] {
				n += int(truth(seen[p]))
				seen[p] = true
			}
			at += size
		}
		return n
	}
	found, f := copies(), Finding{P: 1}
	if found == 0 {
		return []Finding{f}
	}
	for _, step := range h.Steps {
		first := map[uint64]bool{}
		for _, group := range step.Groups {
			if p := group[0].Prompt; first[p] {
				f.Look = append(f.Look, Place{step.Number, group[0].Index})
			} else {
				first[p] = true
			}
		}
	}
	dealt, rounds := 0, 0
	f.P = chance(func(random *rand.Rand) bool {
		random.Shuffle(len(prompts), func(i, j int) { prompts[i], prompts[j] = prompts[j], prompts[i] })
		n := copies()
		dealt, rounds = dealt+n, rounds+1
		return n >= found
	})
	by, of := float64(dealt)/float64(rounds), float64(len(prompts))
	f.Since = f.Look[0].Step
	f.Effect = 2 * (float64(found) - by) / of
	f.Evidence = fmt.Sprintf("%d of %.0f groups repeat a prompt of their step; dealt to the steps at random, %.0f would",
		found, of, by)
	f.Look = from(f.Look, 0)
	f.Proof = h.withoutCopies(f.Since)
	return []Finding{f}
}

// withoutCopies leaves the copies of a step out.
func (h *History) withoutCopies(number int) *whatif.Question {
	q := &whatif.Question{From: number - 1}
	for _, step := range h.Steps {
		seen := map[uint64]bool{}
		for _, group := range step.Groups {
			if step.Number == number && seen[group[0].Prompt] && len(q.Without) < mostRows {
				q.Without = append(q.Without, fmt.Sprintf("group=%d@%d", group[0].Group, number))
			}
			seen[group[0].Prompt] = true
		}
	}
	return q
}
