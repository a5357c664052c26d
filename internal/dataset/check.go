package dataset

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"unicode/utf8"

	"gyre/internal/answer"
)

// Report is what Check finds in a set.
type Report struct {
	Path    string         `json:"path"`
	SHA256  string         `json:"sha256"`
	Rows    int            `json:"rows"`
	Sources map[string]int `json:"sources"`
	// Duplicates are rows whose problem has occurred before; Shared those that also occur in the file compared with.
	Duplicates []int `json:"duplicates"`
	Shared     []int `json:"shared"`
	// OtherAnswer are the duplicates with another answer than before, SameID rows with the id of an earlier one.
	OtherAnswer []int `json:"duplicates_other_answer"`
	SameID      []int `json:"same_id"`
	// NoQuestion are rows that ask nothing, which are left out; NoAnswer those without an answer: nothing can be right
	// there.
	NoQuestion []int `json:"no_question"`
	NoAnswer   []int `json:"no_answer"`
	// LeftOut are rows in which reading lost text: words beside the answer, or characters that are no more than U+FFFD.
	LeftOut []int `json:"text_left_out"`
	// Changed counts the answers that the MATH rules rewrite: a grader that normalises replies only marks a verbatim
	// answer to these as wrong. Unscored lists those that do not score under our own grading either.
	Changed  int   `json:"gold_not_normal"`
	Unscored []int `json:"gold_unscored"`
	// Lengths of the prompts, in characters or, when a measure is given, in its units.
	Shortest int    `json:"prompt_min"`
	Median   int    `json:"prompt_median"`
	Longest  int    `json:"prompt_max"`
	Unit     string `json:"prompt_unit"`
}

// Measure gives the length of a prompt in some unit.
type Measure struct {
	Unit string
	Of   func([]Message) (int, error)
}

// Characters measures prompts in characters.
var Characters = Measure{"characters", func(prompt []Message) (int, error) {
	n := 0
	for _, m := range prompt {
		n += len([]rune(m.Content))
	}
	return n, nil
}}

func boxedAnswer(text string) string { content, _ := answer.Boxed(text); return content }

// Check audits a set: duplicates, problems shared with another set, and answers that would not score. scores says
// whether a reply to a row is right.
func Check(s *Set, against *Set, measure Measure, scores func(row Row, reply string) bool) (Report, error) {
	r := Report{Path: s.Path, SHA256: s.Hash, Rows: s.All, Sources: map[string]int{}, Unit: measure.Unit,
		Duplicates: []int{}, Shared: []int{}, OtherAnswer: []int{}, SameID: []int{}, Unscored: []int{},
		LeftOut:    []int{},
		NoQuestion: append([]int{}, s.NoQuestion...), NoAnswer: append([]int{}, s.NoAnswer...)}
	golds, ids, elsewhere := map[string]string{}, map[string]bool{}, map[string]bool{}
	if against != nil {
		for _, row := range against.Rows {
			elsewhere[folded(row.Question)] = true
		}
	}
	var lengths []int
	for _, row := range s.Rows {
		i := row.Index
		r.Sources[row.Source]++
		key := folded(row.Question)
		if gold, seen := golds[key]; !seen {
			golds[key] = row.Gold
		} else if r.Duplicates = append(r.Duplicates, i); gold != row.Gold && gold != "" && row.Gold != "" {
			r.OtherAnswer = append(r.OtherAnswer, i)
		}
		if id := row.Source + "/" + row.ID; ids[id] {
			r.SameID = append(r.SameID, i)
		} else {
			ids[id] = true
		}
		if elsewhere[key] {
			r.Shared = append(r.Shared, i)
		}
		n, err := measure.Of(row.Prompt)
		if err != nil {
			return r, fmt.Errorf("%s row %d: %w", s.Path, i, err)
		}
		lengths = append(lengths, n)
		if row.Unit+row.LeftOut != "" || strings.ContainsRune(row.Question+row.Gold, utf8.RuneError) {
			r.LeftOut = append(r.LeftOut, i)
		}
		if row.Gold == "" {
			continue
		}
		if normal, _, err := answer.Normalize(row.Gold); err != nil || normal != row.Gold {
			r.Changed++
		}
		if !scores(row, `\boxed{`+row.Gold+`}`) {
			r.Unscored = append(r.Unscored, i)
		}
	}
	slices.Sort(lengths)
	r.Shortest, r.Median, r.Longest = lengths[0], lengths[len(lengths)/2], lengths[len(lengths)-1]
	return r, nil
}

// Split draws validation rows. Rows with the same problem stay on the same side; both sides are in the file's order.
func Split(t *Table, validation int, seed int64) (train, held []int) {
	groups := map[string][]int{}
	var order []string
	for i, c := range t.Rows {
		key := folded(problemOf(c))
		if len(groups[key]) == 0 {
			order = append(order, key)
		}
		groups[key] = append(groups[key], i)
	}
	for _, k := range rand.New(rand.NewPCG(uint64(seed), 0x9e3779b97f4a7c15)).Perm(len(order)) {
		group := groups[order[k]]
		if len(held)+len(group) <= validation {
			held = append(held, group...)
		} else {
			train = append(train, group...)
		}
	}
	slices.Sort(train)
	slices.Sort(held)
	return train, held
}
