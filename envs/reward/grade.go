package reward

import (
	"cmp"
	"fmt"
	"strings"
	"unicode"

	"gyre/internal/answer"
	"gyre/internal/nearest"
)

// Mode says when two answers are equal.
type Mode string

// The modes. Lenient accepts what Strict accepts, except empty answers, other units, and numbers that only
// lacking spaces make one.
const (
	Strict  Mode = "strict"  // the MATH benchmark's textual rules, on both sides
	Lenient Mode = "lenient" // or provably the same value
)

// ParseMode reads a mode's name.
func ParseMode(name string) (Mode, error) {
	if m := Mode(name); m == Strict || m == Lenient {
		return m, nil
	}
	names := []string{string(Strict), string(Lenient)}
	return "", fmt.Errorf("unknown mode %q%s; expected strict or lenient", name, nearest.Hint(name, names))
}

// Verdict is the outcome of grading one answer.
type Verdict struct {
	Correct   bool    `json:"correct"`
	Extracted *string `json:"extracted"` // the answer as it is written; null when there is none
	// Normalized are both sides after the MATH rules; null where they fail.
	Normalized *string  `json:"normalized"`
	Gold       *string  `json:"gold"`
	Rules      []string `json:"rules"` // those that changed a side, and what decided
}

// GradeAnswer compares an answer with the gold one.
func GradeAnswer(pred, gold string, mode Mode) Verdict {
	v := Verdict{Extracted: &pred, Rules: []string{}}
	seen, wanted := answer.Visible(pred), answer.Visible(gold)
	p, firedPred, errPred := answer.Normalize(seen)
	g, firedGold, errGold := answer.Normalize(wanted)
	v.note("pred", firedPred, errPred, p, &v.Normalized)
	v.note("gold", firedGold, errGold, g, &v.Gold)
	switch {
	case errPred == nil && errGold == nil && p == g && (mode == Strict ||
		!blank(seen) && !blank(wanted) && answer.SameText(seen, wanted)):
		v.decide("same_text")
	case (errPred != nil || errGold != nil) && seen == wanted:
		v.decide("same_raw_text")
	case mode == Lenient:
		if how, equal := answer.EqualLenient(seen, wanted); equal {
			v.decide(how)
		}
	}
	return v
}

// GradeReply compares the last box of a reply, or else what is behind its last ####, with the gold answer. A reply
// without either, or with an empty one, is never correct, and neither is any reply to a problem without an answer.
// Where the rules leave nothing of a side (they cut units off, and all of "\text{ none}" looks like one) the answers
// are compared as they are written.
func GradeReply(reply, gold string, mode Mode) Verdict {
	pred, found := extract(reply, "boxed")
	if !found {
		if pred, found = extract(reply, "hash"); !found {
			return Verdict{Rules: []string{"no_box"}}
		}
	}
	want := answer.Marked(gold)
	if !want.Marked {
		want.Text = gold
	}
	return gradeFound(pred, want, mode)
}

// gradeFound compares what was found in a reply and a gold answer. What stood behind a mark is also compared with the
// gold answer as if that did.
func gradeFound(pred, gold answer.Final, mode Mode) Verdict {
	v := GradeExtracted(pred.Text, gold.Text, mode)
	if !v.Correct && pred.Marked && !gold.Marked {
		again := answer.Plain(gold.Text)
		v, gold.Unit = GradeExtracted(pred.Text, again.Text, mode), cmp.Or(gold.Unit, again.Unit)
	}
	if v.Correct && !answer.SameUnit(pred.Unit, gold.Unit) {
		v.Correct, v.Rules = false, append(v.Rules, "other_unit")
	}
	return v
}

// GradeExtracted is GradeReply for an answer that has been taken out of its reply.
func GradeExtracted(pred, gold string, mode Mode) Verdict {
	v := GradeAnswer(pred, gold, mode)
	switch {
	case blank(pred):
		v.Correct, v.Rules = false, append(v.Rules, "empty_box")
	case blank(gold):
		v.Correct, v.Rules = false, append(v.Rules, "empty_gold")
	case v.Normalized != nil && blank(*v.Normalized) || v.Gold != nil && blank(*v.Gold):
		v.Correct, v.Rules = strings.TrimSpace(pred) == strings.TrimSpace(gold), append(v.Rules, "raw_text")
	}
	return v
}

// blank says whether nothing of a text would be seen.
func blank(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsSpace(r) && unicode.IsGraphic(r) })
}

func (v *Verdict) decide(how string) { v.Correct, v.Rules = true, append(v.Rules, how) }

func (v *Verdict) note(side string, fired []string, err error, text string, to **string) {
	for _, name := range fired {
		v.Rules = append(v.Rules, side+":"+name)
	}
	if err != nil {
		v.Rules = append(v.Rules, side+":not_normalizable")
		return
	}
	*to = &text
}
