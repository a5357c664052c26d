package reward

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"gyre/internal/answer"
)

// The ways in which a reply gives its answer.
const (
	answerAuto  = "auto"
	answerBoxed = "boxed"
	answerHash  = "hash"
	answerTag   = "tag"
	answerWhole = "whole"
)

type correctnessOptions struct {
	Mode   string `option:"mode" oneof:"strict,lenient" doc:"when answers are equal: by the MATH rules, or by value"`
	Answer string `option:"answer" oneof:"auto,boxed,hash,tag,whole" doc:"where it stands; auto: the first of boxed, tag, hash, whole that is there"`
}

type formatOptions struct {
	Style   string `option:"style" oneof:"steps,boxed,hash,think" doc:"what the reply should look like"`
	Pattern string `option:"pattern" doc:"a regular expression of your own instead: 1 where the reply matches"`
}

type lengthOptions struct {
	Target float64 `option:"target,max_length" range:"(0,)" doc:"the length that earns 1; none and twice as much earn 0"`
	Unit   string  `option:"unit" oneof:"characters,tokens,words" doc:"of the length"`
}

type repetitionOptions struct {
	N int `option:"n" range:"[1,)" doc:"words per repeated piece"`
}

func init() {
	none := func() any { return &struct{}{} }
	always := func(f function) func(any) (Component, error) { return func(any) (Component, error) { return f, nil } }
	Register(
		Kind{"correctness", "1 when the answer is the gold one; problems of reasoning-gym with many solutions are " +
			"verified",
			func() any { return &correctnessOptions{Mode: string(Strict), Answer: answerAuto} },
			func(o any) (Component, error) { return newCorrectness(*o.(*correctnessOptions)) }},
		Kind{"format", "how much the reply looks as asked for, 0 to 1",
			func() any { return &formatOptions{Style: "steps"} },
			func(o any) (Component, error) { return newFormat(*o.(*formatOptions)) }},
		Kind{"length", "1 at the target length, falling to 0 at none and at twice as much",
			func() any { return &lengthOptions{Target: RLDynamicLength, Unit: "characters"} },
			func(o any) (Component, error) { return newLength(*o.(*lengthOptions)) }},
		Kind{"boxed", "1 when the reply has a box with something in it", none, always(func(r Reply) (Score, error) {
			content, found := answer.Boxed(r.Text)
			return place(r.Text, indicator(found && !blank(content))), nil
		})},
		Kind{"repetition", "share of the reply's word groups that have occurred before (give it a negative weight)",
			func() any { return &repetitionOptions{N: 4} },
			func(o any) (Component, error) {
				n := o.(*repetitionOptions).N
				return function(func(r Reply) (Score, error) {
					return Score{Value: repeated(strings.Fields(r.Text), n)},
						nil
				}), nil
			}},
		Kind{"truncation", "1 when the reply was cut off (give it a negative weight)", none,
			always(func(r Reply) (Score, error) {
				return Score{Value: indicator(r.Truncated)}, nil
			})},
	)
}

func indicator(b bool) float64 {
	if b {
		return 1
	}
	return 0
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
	hashLine  = regexp.MustCompile(`####\s*([^\n]*)`)
	hashValue = regexp.MustCompile(`####\s*-?[$]?[0-9]`)
	answerBox = regexp.MustCompile(`(?s)<answer>(.*?)</answer>`)
	thinking  = regexp.MustCompile(`(?s)^\s*<think>.*?</think>\s*\S`)
)

// Extract finds a reply's answer; how is one of auto, boxed, hash, tag and whole.
func Extract(text, how string) (string, bool) {
	switch how {
	case answerBoxed:
		content, found := answer.Boxed(text)
		return content, found
	case answerHash:
		if all := hashLine.FindAllStringSubmatch(text, -1); len(all) > 0 {
			last := strings.Trim(strings.TrimSpace(all[len(all)-1][1]), "$")
			return strings.ReplaceAll(strings.TrimSuffix(last, "."), ",", ""), true
		}
	case answerTag:
		if all := answerBox.FindAllStringSubmatch(text, -1); len(all) > 0 {
			return strings.TrimSpace(all[len(all)-1][1]), true
		}
	case answerWhole:
		return strings.TrimSpace(text), true
	case answerAuto:
		for _, how := range []string{answerBoxed, answerTag, answerHash, answerWhole} {
			if content, found := Extract(text, how); found {
				return content, true
			}
		}
	}
	return "", false
}

func newCorrectness(o correctnessOptions) (Component, error) {
	return function(func(r Reply) (Score, error) {
		pred, found := Extract(r.Text, o.Answer)
		if !found || blank(pred) {
			return Score{}, nil
		}
		if verify := verifiers[r.Source]; verify != nil {
			return place(r.Text, indicator(verify(pred, r))), nil
		}
		return place(r.Text, indicator(GradeExtracted(pred, r.Gold, Mode(o.Mode)).Correct)), nil
	}), nil
}

func newFormat(o formatOptions) (Component, error) {
	if o.Pattern != "" {
		pattern, err := regexp.Compile(o.Pattern)
		if err != nil {
			return nil, fmt.Errorf("option pattern: %w", err)
		}
		return function(func(r Reply) (Score, error) {
			return place(r.Text, indicator(pattern.MatchString(r.Text))), nil
		}), nil
	}
	styles := map[string]func(string) float64{
		"steps": FormatCues,
		"boxed": func(s string) float64 {
			content, found := answer.Boxed(s)
			return indicator(found && !blank(content))
		},
		"hash":  func(s string) float64 { return indicator(hashValue.MatchString(s)) },
		"think": func(s string) float64 { return indicator(thinking.MatchString(s)) },
	}
	style := styles[o.Style]
	return function(func(r Reply) (Score, error) { return place(r.Text, style(r.Text)), nil }), nil
}

func newLength(o lengthOptions) (Component, error) {
	measures := map[string]func(Reply) int{
		"characters": func(r Reply) int { return utf8.RuneCountInString(r.Text) },
		"tokens":     func(r Reply) int { return r.Tokens },
		"words":      func(r Reply) int { return len(strings.Fields(r.Text)) },
	}
	measure := measures[o.Unit]
	return function(func(r Reply) (Score, error) { return Score{Value: LengthScore(measure(r), o.Target)}, nil }), nil
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
