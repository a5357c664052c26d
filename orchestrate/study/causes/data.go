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
		out = append(out, f)
	}
	if len(tags) > 1 {
		for _, tag := range tags {
			out = append(out, h.wrongThroughout(tag))
		}
	}
	return out
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
	f.Evidence = fmt.Sprintf("%d of %d verdicts contradict what the same reply to the same prompt earned in most other groups",
		against, known)
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
	f.Evidence = fmt.Sprintf("%d of %.0f groups repeat a prompt of their step; dealt to the steps at random, %.0f would", found, of,
		by)
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
