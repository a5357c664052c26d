package reward

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"

	"gyre/envs"
	"gyre/internal/answer"
	"gyre/internal/nearest"
	"gyre/internal/statistics"
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
	"compute_correctness_score": ofSolution(func(s string, a Arguments) (any, error) {
		return seedCorrectness(s, a.Truth)
	}),
	"compute_format_score":     ofSolution(func(s string, _ Arguments) (any, error) { return Float(FormatCues(s)), nil }),
	"compute_length_score":     ofSolution(func(s string, a Arguments) (any, error) { return seedLength(s, a.MaxLength) }),
	"compute_component_scores": ofSolution(func(s string, a Arguments) (any, error) { return seedScores(s, a) }),
	"compute_score": ofSolution(func(s string, a Arguments) (any, error) {
		scores, err := seedScores(s, a)
		return scores.Total, err
	}),
	"extract_solution":       ofText(seedExtract),
	"last_boxed_only_string": ofText(func(s string) (*string, error) { return found(answer.LastBoxed(s)) }),
	"remove_boxed":           ofText(seedRemoveBoxed),
	"strip_string":           ofText(seedStrip),
}

func ofSolution(f func(s string, a Arguments) (any, error)) func(Arguments) (any, error) {
	return func(a Arguments) (any, error) {
		if a.Solution == nil {
			return nil, errors.New("expected solution_str, a string")
		}
		return f(*a.Solution, a)
	}
}

func ofText(f func(string) (*string, error)) func(Arguments) (any, error) {
	return func(a Arguments) (any, error) {
		text := cmp.Or(a.Text, a.Solution)
		if text == nil {
			return nil, errors.New("expected text, a string")
		}
		return f(*text)
	}
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

func seedCorrectness(solution string, truth any) (Float, error) {
	extracted, err := seedExtract(solution)
	if gold, isText := truth.(string); err == nil && extracted != nil && isText && *extracted == gold {
		return 1, nil
	}
	return 0, err
}

func seedLength(solution string, maxLength *float64) (Float, error) {
	limit := float64(RLDynamicLength)
	if maxLength != nil {
		limit = *maxLength
	}
	if limit == 0 {
		return 0, &Exception{"ZeroDivisionError", "division by zero"}
	}
	return Float(LengthScore(utf8.RuneCountInString(solution), limit)), nil
}

// LengthScore is 1 at the target length, falling to 0 at none and at twice as much.
func LengthScore(n int, target float64) float64 { return max(1-math.Abs(float64(n)/target-1), 0) }

func seedScores(solution string, a Arguments) (s ComponentScores, err error) {
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
	if s.CorrectnessBinary, err = seedCorrectness(solution, a.Truth); err != nil {
		return s, err
	}
	if s.LengthBinary, err = seedLength(solution, a.MaxLength); err != nil {
		return s, err
	}
	s.FormatBinary = Float(FormatCues(solution))
	s.CorrectnessWeighted = s.CorrectnessBinary * s.Weights.Correctness
	s.FormatWeighted = s.FormatBinary * s.Weights.Format
	s.LengthWeighted = s.LengthBinary * s.Weights.Length
	s.Total = Float(float64(s.CorrectnessWeighted) + float64(s.FormatWeighted) + float64(s.LengthWeighted))
	return s, nil
}

// cues are words between characters that are not letters, digits or underscores of any script. (The \b of Go's
// regular expressions knows ASCII only.)
var cues = func() (list [3]*regexp.Regexp) {
	for i, word := range []string{"first", "second", "third"} {
		list[i] = regexp.MustCompile(`(?:^|[^\pL\pN_])` + word + `(?:$|[^\pL\pN_])`)
	}
	return list
}()

// FormatCues is the rldynamic project's format score: a quarter each for the words first, second, third and for step1
// and step2 (spaces do not count), two fifths for \boxed, one at most.
func FormatCues(text string) float64 {
	text = cases.Lower(language.Und).String(text) // one character may become two, as Python's str.lower
	dense := strings.ReplaceAll(text, " ", "")
	score := 0.0
	for _, cue := range cues {
		score += 0.25 * envs.Indicator(cue.MatchString(text))
	}
	for _, step := range []string{"step1", "step2"} {
		score += 0.25 * envs.Indicator(strings.Contains(dense, step))
	}
	score += 0.4 * envs.Indicator(strings.Contains(text, `\boxed`))
	return min(score, 1)
}

// Float is a number that JSON shows as Python does: 1.0, not 1.
type Float float64

// MarshalJSON implements json.Marshaler. A number that is not finite is null.
func (f Float) MarshalJSON() ([]byte, error) {
	x := float64(f)
	if !statistics.Finite(x) {
		return []byte("null"), nil
	}
	format := byte('f')
	if a := math.Abs(x); a != 0 && (a < 1e-4 || a >= 1e16) {
		format = 'e'
	}
	s := strconv.FormatFloat(x, format, -1, 64)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return []byte(s), nil
}
