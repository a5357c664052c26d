package envs

import (
	"math"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestNamesHoldNoSeparators(t *testing.T) {
	for _, name := range []string{"correctness", "format", "TimeLimit.truncated", "pass@1", "größe", "two words",
		"a_b-c+d"} {
		if err := CheckName(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", "a/../../../b", `a\b`, "..", ".hidden", "a\x1b[2J", "a\nb", "\xff", " a",
		strings.Repeat("x", 101), "a\u202eb"} {
		if err := CheckName(name); err == nil || strings.ContainsFunc(err.Error(), unprintable) ||
			!utf8.ValidString(err.Error()) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

func TestResultsThatNoEpisodeCanHold(t *testing.T) {
	many := map[string]float64{}
	for i := range 300 {
		many[strings.Repeat("x", i%100+1)+string(rune('a'+i/100))] = 1
	}
	for want, r := range map[string]Result{
		"the reward is NaN":       {Reward: math.NaN()},
		"the reward is 1e+31":     {Reward: 1e31},
		"the reward is -Inf":      {Reward: math.Inf(-1)},
		"component \"x\" is +Inf": {Components: []Component{{Name: "x", Value: math.Inf(1)}}},
		"has placement \"above\"": {Components: []Component{{Name: "x", Placement: "above"}}},
		"a name is empty":         {Components: []Component{{}}},
		"info: the name":          {Info: map[string]float64{"a/b": 1}},
		"at most 256":             {Info: many},
	} {
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
	good := Result{Reward: -LargestReward, Components: []Component{{Name: "x", Value: LargestReward,
		Placement: PlaceMean}},
		Info: map[string]float64{"cell": math.NaN()}} // which no metric will hold
	if err := good.Check(); err != nil {
		t.Error(err)
	}
}

func TestStartsThatNoEpisodeCanHave(t *testing.T) {
	for want, s := range map[string]Start{
		"the stop string \"\"": {StopStrings: []string{"</a>", ""}},
		"expected at most 16":  {StopStrings: strings.Split(strings.Repeat("x ", 16), " ")},
		"1 to 200 bytes":       {StopStrings: []string{strings.Repeat("x", 300)}},
		"has no name":          {Actions: []string{"Left", " "}},
	} {
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
	if err := (Start{StopStrings: []string{"</answer>", "\n"}, Actions: []string{"Left"}}).Check(); err != nil {
		t.Error(err)
	}
}
