package reward

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"gyre/internal/answer"
	"gyre/internal/nearest"
)

// Arguments are the keyword arguments of the rldynamic project's functions. Text is the one string of those that take
// no more; Others (data_source, extra_info, …) change nothing.
type Arguments struct {
	Solution  *string            `json:"solution_str"`
	Truth     any                `json:"ground_truth"`
	MaxLength *float64           `json:"max_length"`
	Weights   map[string]float64 `json:"weights"`
	Text      *string            `json:"text"`
}

// Exception is what the project's Python raises where it does not return.
type Exception struct{ Kind, Message string }

func (e *Exception) Error() string { return e.Kind + ": " + e.Message }

// ComponentScores is the dictionary of compute_component_scores, keys in its order. "Binary" are the unweighted scores.
type ComponentScores struct {
	CorrectnessBinary   Float            `json:"correctness_binary"`
	FormatBinary        Float            `json:"format_binary"`
	LengthBinary        Float            `json:"length_binary"`
	CorrectnessWeighted Float            `json:"correctness_weighted"`
	FormatWeighted      Float            `json:"format_weighted"`
	LengthWeighted      Float            `json:"length_weighted"`
	Weights             RLDynamicWeights `json:"weights"`
	Total               Float            `json:"total"`
}

// RLDynamicWeights are the weights of the rldynamic project's three components.
type RLDynamicWeights struct {
	Correctness Float `json:"correctness"`
	Format      Float `json:"format"`
	Length      Float `json:"length"`
}

// RLDynamicLength is the reply length, in characters, that earns the most where nothing else is said.
const RLDynamicLength = 800

var seedWeights = RLDynamicWeights{0.34, 0.33, 0.33}

// seedFunctions are rldynamic's, values and defects included: the gold answer is compared as it is written, an
// empty box equals an empty gold, and a dangling \frac raises.
var seedFunctions = map[string]func(Arguments) (any, error){
	"compute_correctness_score": func(a Arguments) (any, error) {
		s, err := a.solution()
		if err != nil {
			return nil, err
		}
		return floatOf(seedCorrectness(s, a.Truth))
	},
	"compute_format_score": func(a Arguments) (any, error) {
		s, err := a.solution()
		return Float(FormatCues(s)), err
	},
	"compute_length_score": func(a Arguments) (any, error) {
		s, err := a.solution()
		if err != nil {
			return nil, err
		}
		return floatOf(seedLength(s, a.MaxLength))
	},
	"compute_component_scores": func(a Arguments) (any, error) { return seedScores(a) },
	"compute_score": func(a Arguments) (any, error) {
		scores, err := seedScores(a)
		return scores.Total, err
	},
	"extract_solution": func(a Arguments) (any, error) { return onText(a, seedExtract) },
	"last_boxed_only_string": func(a Arguments) (any, error) {
		return onText(a, func(s string) (*string, error) { return found(answer.LastBoxed(s)) })
	},
	"remove_boxed": func(a Arguments) (any, error) { return onText(a, seedRemoveBoxed) },
	"strip_string": func(a Arguments) (any, error) { return onText(a, seedStrip) },
}

// FunctionNames lists the rldynamic project's functions.
func FunctionNames() []string { return slices.Sorted(maps.Keys(seedFunctions)) }

// Call calls one of the rldynamic project's functions. The result is a Float, a *string (nil for None) or
// ComponentScores; an *Exception is what the original raises, any other error a wrong argument.
func Call(name string, a Arguments) (any, error) {
	f, known := seedFunctions[name]
	if !known {
		return nil, fmt.Errorf("unknown function %q%s; expected one of %s", name, nearest.Hint(name, FunctionNames()),
			strings.Join(FunctionNames(), ", "))
	}
	return f(a)
}

func (a Arguments) solution() (string, error) {
	if a.Solution == nil {
		return "", errors.New("expected solution_str, a string")
	}
	return *a.Solution, nil
}

func onText(a Arguments, f func(string) (*string, error)) (any, error) {
	text := a.Text
	if text == nil {
		text = a.Solution
	}
	if text == nil {
		return nil, errors.New("expected text, a string")
	}
	return f(*text)
}

func floatOf(x float64, err error) (any, error) { return Float(x), err }

func found(s string, ok bool) (*string, error) {
	if !ok {
		return nil, nil
	}
	return &s, nil
}

func seedExtract(s string) (*string, error) {
	box, ok := answer.LastBoxed(s)
	if !ok {
		return nil, nil
	}
	content, err := seedRemoveBoxed(box)
	if err != nil {
		return nil, err
	}
	return seedStrip(*content)
}

func seedStrip(s string) (*string, error) {
	normal, _, err := answer.Normalize(s)
	if err != nil {
		return nil, &Exception{"IndexError", "string index out of range"}
	}
	return &normal, nil
}

func seedRemoveBoxed(s string) (*string, error) {
	if strings.Contains(s, `\boxed `) {
		rest, first := strings.CutPrefix(s, `\boxed `)
		if !first {
			return nil, &Exception{"AssertionError", ""}
		}
		return &rest, nil
	}
	for _, command := range []string{`\boxed{`, `\fbox{`} {
		if rest, is := strings.CutPrefix(s, command); is {
			_, n := utf8.DecodeLastRuneInString(rest)
			rest = rest[:len(rest)-n]
			return &rest, nil
		}
	}
	return &s, nil
}

func seedCorrectness(solution string, truth any) (float64, error) {
	extracted, err := seedExtract(solution)
	if gold, isText := truth.(string); err == nil && extracted != nil && isText && *extracted == gold {
		return 1, nil
	}
	return 0, err
}

func seedLength(solution string, maxLength *float64) (float64, error) {
	limit := float64(RLDynamicLength)
	if maxLength != nil {
		limit = *maxLength
	}
	if limit == 0 {
		return 0, &Exception{"ZeroDivisionError", "division by zero"}
	}
	return LengthScore(utf8.RuneCountInString(solution), limit), nil
}

// LengthScore is 1 at the target length, falling to 0 at none and at twice as much.
func LengthScore(n int, target float64) float64 { return max(1-math.Abs(float64(n)/target-1), 0) }

func seedScores(a Arguments) (s ComponentScores, err error) {
	solution, err := a.solution()
	if err != nil {
		return s, err
	}
	s.Weights = seedWeights
	if a.Weights != nil {
		for name, to := range map[string]*Float{"correctness": &s.Weights.Correctness, "format": &s.Weights.Format,
			"length": &s.Weights.Length} {
			w, given := a.Weights[name]
			if !given {
				return s, &Exception{"KeyError", "'" + name + "'"}
			}
			*to = Float(w)
		}
	}
	correctness, err := seedCorrectness(solution, a.Truth)
	if err != nil {
		return s, err
	}
	length, err := seedLength(solution, a.MaxLength)
	if err != nil {
		return s, err
	}
	s.CorrectnessBinary, s.FormatBinary, s.LengthBinary = Float(correctness), Float(FormatCues(solution)), Float(length)
	s.CorrectnessWeighted = s.CorrectnessBinary * s.Weights.Correctness
	s.FormatWeighted = s.FormatBinary * s.Weights.Format
	s.LengthWeighted = s.LengthBinary * s.Weights.Length
	s.Total = Float(float64(s.CorrectnessWeighted) + float64(s.FormatWeighted) + float64(s.LengthWeighted))
	return s, nil
}

// FormatCues is the rldynamic project's format score: a quarter each for the words first, second, third and for step1
// and step2 (spaces do not count), two fifths for \boxed, one at most.
func FormatCues(text string) float64 {
	text = lower(text)
	dense := strings.ReplaceAll(text, " ", "")
	score := 0.0
	for _, word := range []string{"first", "second", "third"} {
		if containsWord(text, word) {
			score += 0.25
		}
	}
	for _, step := range []string{"step1", "step2"} {
		if strings.Contains(dense, step) {
			score += 0.25
		}
	}
	if strings.Contains(text, `\boxed`) {
		score += 0.4
	}
	return min(score, 1)
}
