package reward

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"gyre/envs"
	"gyre/internal/answer"
)

type correctnessOptions struct {
	Mode   string `option:"mode" oneof:"strict,lenient" doc:"when answers are equal: by the MATH rules, or by value"`
	Answer string `option:"answer" oneof:"auto,boxed,hash,tag,whole" doc:"where it stands: in a box, after ####, in <answer>, the whole reply; auto: the first that is there"`
}

type formatOptions struct {
	Style   string `option:"style" oneof:"steps,boxed,hash,think" doc:"what the reply should look like; steps: cues of first, second, third"`
	Pattern string `option:"pattern" doc:"a regular expression of your own instead: 1 where the reply matches"`
}

type lengthOptions struct {
	Target float64 `option:"target,max_length" range:"(0,)" doc:"the length that earns 1; none and twice as much earn 0"`
	Unit   string  `option:"unit" oneof:"characters,tokens,words" doc:"of the length"`
}

type repetitionOptions struct {
	N int `option:"n" range:"[1,)" doc:"words per repeated piece"`
}

// kinds are the components by name.
var kinds = map[string]kind{
	"correctness": kindOf("1 if the answer is the gold answer; problems of reasoning-gym with many solutions are "+
		"verified", correctnessOptions{Mode: string(Strict), Answer: "auto"}, newCorrectness),
	"format": kindOf("how closely the reply has the requested form, 0 to 1", formatOptions{Style: "steps"}, newFormat),
	"length": kindOf("1 at the target length, falling to 0 at none and at twice as much",
		lengthOptions{Target: RLDynamicLength, Unit: "characters"}, newLength),
	"boxed": kindOf("1 if the reply has a box that is not empty", struct{}{},
		func(struct{}) (Component, error) { return styled(filledBox), nil }),
	"repetition": kindOf("share of the reply's groups of words that occurred before; give it a negative weight",
		repetitionOptions{N: 4}, func(o repetitionOptions) (Component, error) {
			return function(func(r Reply) Score { return Score{Value: repeated(strings.Fields(r.Text), o.N)} }), nil
		}),
	"truncation": kindOf("1 if the reply was cut off; give it a negative weight", struct{}{},
		func(struct{}) (Component, error) {
			return function(func(r Reply) Score { return Score{Value: envs.Indicator(r.Truncated)} }), nil
		}),
	"command": unbounded(kindOf("the number that a program of yours gives for the reply",
		commandOptions{Timeout: 10, Start: 25, Processes: 1, Key: "score"}, newCommand)),
}

func unbounded(k kind) kind {
	k.unbounded = true
	return k
}

// place says which segment of a reply its answer is: from the first #### to the end, or the last box.
func place(text string, value float64) Score {
	if i := strings.Index(text, "####"); i >= 0 {
		return Score{value, i, len(text)}
	}
	if box, found := answer.LastBoxed(text); found {
		if i := strings.LastIndex(text, box); i >= 0 {
			return Score{value, i, i + len(box)}
		}
	}
	return Score{Value: value}
}

var (
	beginsAsNumber = regexp.MustCompile(`^[-(]*(?:\.?[0-9]|\\)`)
	answerBox      = regexp.MustCompile(`(?s)<answer>(.*?)</answer>`)
	thinking       = regexp.MustCompile(`(?s)^\s*<think>.*?</think>\s*\S`)
)

// Extract finds a reply's answer; how is one of auto, boxed, hash, tag and whole.
func Extract(text, how string) (string, bool) {
	found, ok := extract(text, how)
	return found.Text, ok
}

// extract is Extract with what else stands after ####.
func extract(text, how string) (found answer.Final, ok bool) {
	switch how {
	case "boxed":
		found.Text, ok = answer.Boxed(text)
	case "hash":
		found = answer.Marked(text)
		ok = found.Marked
	case "tag":
		if all := answerBox.FindAllStringSubmatch(text, -1); len(all) > 0 {
			found.Text, ok = strings.TrimSpace(all[len(all)-1][1]), true
		}
	case "whole":
		found.Text, ok = strings.TrimSpace(text), true
	case "auto":
		for _, how := range []string{"boxed", "tag", "hash", "whole"} {
			if found, ok = extract(text, how); ok {
				break
			}
		}
	}
	return found, ok
}

// shortAnswer is the length in characters up to which a reply of one line may be an answer by itself.
const shortAnswer = 64

// Readable reports whether a reply has its answer where a grader looks for it. With auto, a reply without a mark has
// it only where it is short enough to be the answer itself.
func Readable(text, how string) bool {
	if how != "auto" {
		content, found := Extract(text, how)
		return found && !blank(content)
	}
	marked := slices.ContainsFunc([]string{"boxed", "tag", "hash"}, func(how string) bool { return Readable(text, how) })
	bare := strings.TrimSpace(text)
	return marked || bare != "" && !strings.Contains(bare, "\n") && utf8.RuneCountInString(bare) <= shortAnswer
}

func newCorrectness(o correctnessOptions) (Component, error) {
	return function(func(r Reply) Score {
		pred, found := extract(answer.Visible(r.Text), o.Answer)
		if !found || blank(pred.Text) {
			return Score{}
		}
		right := false
		if verify := verifiers[r.Source]; verify != nil {
			right = verify(pred.Text, r)
		} else {
			right = gradeFound(pred, answer.Final{Text: r.Gold, Unit: r.Unit}, Mode(o.Mode)).Correct
		}
		return place(r.Text, envs.Indicator(right))
	}), nil
}

// styled judges a reply's text.
func styled(style func(text string) float64) Component {
	return function(func(r Reply) Score { return place(r.Text, style(r.Text)) })
}

func filledBox(text string) float64 {
	content, found := answer.Boxed(text)
	return envs.Indicator(found && !blank(content))
}

// hashNumber is 1 where what is read after #### begins as a number does.
func hashNumber(text string) float64 {
	return envs.Indicator(beginsAsNumber.MatchString(answer.Marked(text).Text))
}

func newFormat(o formatOptions) (Component, error) {
	matches := func(pattern *regexp.Regexp) Component {
		return styled(func(text string) float64 { return envs.Indicator(pattern.MatchString(text)) })
	}
	if o.Pattern != "" {
		pattern, err := regexp.Compile(o.Pattern)
		if err != nil {
			return nil, fmt.Errorf("option pattern: %w", err)
		}
		return matches(pattern), nil
	}
	return map[string]Component{"steps": styled(FormatCues), "boxed": styled(filledBox), "hash": styled(hashNumber),
		"think": matches(thinking)}[o.Style], nil
}

func newLength(o lengthOptions) (Component, error) {
	measure := map[string]func(Reply) int{
		"characters": func(r Reply) int { return utf8.RuneCountInString(r.Text) },
		"tokens":     func(r Reply) int { return r.Tokens },
		"words":      func(r Reply) int { return len(strings.Fields(r.Text)) },
	}[o.Unit]
	return function(func(r Reply) Score { return Score{Value: LengthScore(measure(r), o.Target)} }), nil
}

// repeated is the share of groups of n words that have occurred before.
func repeated(words []string, n int) float64 {
	groups := len(words) - n + 1
	if groups <= 0 {
		return 0
	}
	seen := map[string]bool{}
	for i := range groups {
		seen[strings.Join(words[i:i+n], " ")] = true
	}
	return 1 - float64(len(seen))/float64(groups)
}
