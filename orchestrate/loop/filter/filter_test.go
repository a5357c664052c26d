package filter

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gyre/internal/statistics"
	"gyre/orchestrate/config"
	log "gyre/orchestrate/run/metrics"
)

func options(strategy string, value float64, includeZero bool) config.Filter {
	return config.Filter{Strategy: strategy, Value: value, ProbMode: "linear", Metric: "reward", Type: "largest",
		IncludeZero: includeZero, SelectionEps: 0.01, LossScaling: "none"}
}

// scored makes groups of two members whose mean reward is the score.
func scored(scores ...float64) [][]Member {
	groups := make([][]Member, len(scores))
	for g, s := range scores {
		groups[g] = []Member{{Score: s - 1, Length: 3}, {Score: s + 1, Length: 5}}
	}
	return groups
}

// logged are the metrics of a selection.
func logged(s Selection) map[string]float64 {
	line := log.Line{}
	line.Add(s.Metrics)
	return line.Floats()
}

func TestSelectionVectors(t *testing.T) {
	eightTenths := []float64{.1, .1, .1, .1, .1, .1, .1, .1}
	for _, c := range []struct {
		strategy, mode, direction string
		value                     float64
		includeZero               bool
		scores                    []float64
		want                      []int
	}{
		{"top_p", "linear", "largest", 0.6, true, []float64{4, 3, 2, 1}, []int{0, 1}},
		{"top_p", "linear", "largest", 0.6, true, []float64{0, 0, 0}, nil},
		{"top_p", "linear", "largest", 0.9, true, []float64{0, 0, 0}, nil},
		{"top_p", "linear", "largest", 0.9, false, []float64{0, 0, 0}, nil},
		{"top_p", "linear", "largest", 0.9, false, []float64{10, 1, 0, 0}, []int{0}},
		{"top_p", "linear", "largest", 0.9, false, []float64{4, 2, 0, 0}, []int{0, 1}},
		{"top_p", "linear", "largest", 0.9, false, []float64{3, 1, 1, 0}, []int{0, 1, 2}},
		{"top_p", "softmax", "largest", 0.6, true, []float64{1, 1, 1}, []int{0, 1}},
		{"top_p", "softmax", "largest", 0.9, false, []float64{10, 1, 0, 0}, []int{0}},
		{"top_p", "softmax", "largest", 0.9, false, []float64{4, 2, 0, 0}, []int{0, 1}},
		{"top_p", "softmax", "largest", 0.6, false, []float64{1, 1, 1, 0}, []int{0, 1}},
		{"top_p", "linear", "largest", 1, true, []float64{0, -3, 2}, []int{0, 1, 2}},
		{"top_p", "softmax", "smallest", 1, true, []float64{0, -3, 2}, []int{0, 1, 2}},
		{"top_p", "linear", "largest", 1, false, []float64{0, -3, 2}, []int{1, 2}},
		{"none", "", "largest", 0, false, []float64{0, -3, 2}, []int{0, 1, 2}},
		{"top_p", "linear", "largest", .9, true, []float64{2, 1.5, 1, .5, 0, 0, 0, 0}, []int{0, 1, 2}},
		{"top_p", "softmax", "largest", .9, true, []float64{2, 1.5, 1, .5, 0, 0, 0, 0}, []int{0, 1, 2, 3, 4, 5}},
		{"top_p", "linear", "largest", .9, true, []float64{4.2, 4, .05, 0, 0, 0, 0, 0}, []int{0, 1}},
		{"top_p", "softmax", "largest", .9, true, []float64{4.2, 4, .05, 0, 0, 0, 0, 0}, []int{0, 1}},
		{"top_p", "linear", "largest", .9, true, eightTenths, []int{0, 1, 2, 3, 4, 5, 6, 7}},
		{"top_p", "softmax", "largest", .9, true, eightTenths, []int{0, 1, 2, 3, 4, 5, 6, 7}},
		{"top_p", "linear", "largest", .9, true, []float64{3, 1, .5, .2, .1, .05, .02, .01}, []int{0, 1, 2}},
		{"top_p", "softmax", "largest", .9, true, []float64{3, 1, .5, .2, .1, .05, .02, .01}, []int{0, 1, 2, 3, 4, 5}},
		// Below the slack nothing is kept; ascending order meets the zeros first and keeps nothing either.
		{"top_p", "linear", "largest", .9, true, []float64{.005, .005}, nil},
		{"top_p", "linear", "smallest", .9, true, []float64{0, 1, 2}, nil},
		{"top_p", "linear", "smallest", .6, false, []float64{0, 3, 1, 2}, []int{1, 2, 3}},
		{"top_p", "linear", "smallest", .4, false, []float64{0, 3, 1, 2}, []int{2, 3}},
		{"top_p", "softmax", "smallest", .6, true, []float64{0, 3, 1, 2}, []int{0}},
		{"top_p", "linear", "largest", .5, true, []float64{-1, -2}, nil},
		// Shares are of all groups, dropped ones included; ties go to the lower index.
		{"top_k", "", "largest", .5, true, []float64{1, 2, 2, 2}, []int{1, 2}},
		{"top_k", "", "largest", .5, false, []float64{0, 0, 3, 0}, []int{2}},
		{"top_k", "", "largest", .75, false, []float64{0, 1, 2, 3}, []int{1, 2, 3}},
		{"top_k", "", "smallest", .5, true, []float64{4, 3, 3, 3}, []int{1, 2}},
		{"top_k", "", "largest", .1, true, []float64{1, 2}, []int{1}},
		{"top_k_abs", "", "largest", 2.9, true, []float64{1, 5, 3}, []int{1, 2}},
		{"top_k_abs", "", "smallest", 9, true, []float64{1, 5, 3}, []int{0, 1, 2}},
		{"min_p", "", "largest", .5, true, []float64{1, 2, 4, 3.9}, []int{1, 2, 3}},
		{"min_p", "", "smallest", .5, true, []float64{1, 1.99, 2.1}, []int{0, 1}},
	} {
		o := options(c.strategy, c.value, c.includeZero)
		o.ProbMode, o.Type = c.mode, c.direction
		if got := Apply(scored(c.scores...), o); !slices.Equal(got.Kept, c.want) {
			t.Errorf("%s %s %s %g include_zero %v of %v: kept %v, want %v", c.strategy, c.mode, c.direction, c.value,
				c.includeZero, c.scores, got.Kept, c.want)
		}
	}
}

func TestRewardMetrics(t *testing.T) {
	s := Apply([][]Member{{{Score: 10}, {Score: 11}}, {{Score: 0}, {Score: 5}}}, options("top_k", .5, true))
	if !slices.Equal(s.Kept, []int{0}) {
		t.Errorf("mean reward: kept %v, want the first group", s.Kept)
	}
	o := options("top_k", .5, true)
	o.Metric = "reward_sum"
	s = Apply([][]Member{{{Score: 4}, {Score: 6}}, {{Score: 1}, {Score: 5}}, {{Score: 3}, {Score: 4}},
		{{Score: 0}, {Score: 1}}}, o)
	if !slices.Equal(s.Kept, []int{0, 2}) || s.Metrics.Ratio != .5 {
		t.Errorf("reward_sum: kept %v (%g), want 0 and 2 (0.5)", s.Kept, s.Metrics.Ratio)
	}
	for name, want := range map[string]float64{
		"in_group_reward_sum": 6, "chosen_in_group_reward_sum": 8.5,
		"in_group_mean": 3, "chosen_in_group_reward_mean": 4.25,
		"in_group_max": 4, "chosen_in_group_std": (math.Sqrt2 + math.Sqrt2/2) / 2,
		"filter_kept_count": 2, "filter_kept_ratio": .5, "filter_zero_count": 0,
		"filter_unscored_count": 0,
	} {
		if got, ok := logged(s)[name]; !ok || math.Abs(got-want) > 1e-12 {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
}

func TestDeviationHasOneDegreeOfFreedomLess(t *testing.T) {
	o := options("top_k_abs", 1, true)
	o.Metric = "reward_variance"
	s := Apply([][]Member{{{Score: 1}, {Score: 1}}, {{Score: 10.9}, {Score: -1.1}, {Score: -1}, {Score: -1}}}, o)
	if !slices.Equal(s.Kept, []int{1}) || s.Std[0] != 0 || math.Abs(s.Std[1]-5.966853) > 1e-6 {
		t.Errorf("kept %v, deviation %v; want group 1 with 5.966853", s.Kept, s.Std)
	}
	if logged(s)["filter_zero_count"] != 1 {
		t.Errorf("zero count %v, want 1", logged(s)["filter_zero_count"])
	}
}

func TestEntropyAndLength(t *testing.T) {
	groups := [][]Member{{{Entropy: 1, Length: 8}, {Entropy: 3, Length: 2}},
		{{Entropy: 2.5, Length: 4}, {Entropy: 2.5, Length: 5}}}
	for metric, want := range map[string]int{"entropy": 1, "entropy_variance": 0, "length": 0} {
		o := options("top_k_abs", 1, true)
		o.Metric = metric
		s := Apply(groups, o)
		if !slices.Equal(s.Kept, []int{want}) {
			t.Errorf("%s: kept %v, want %d", metric, s.Kept, want)
		}
		if _, ok := logged(s)["in_group_reward_std"]; !ok {
			t.Errorf("%s: the reward deviation is not logged", metric)
		}
	}
	o := options("top_k_abs", 1, true)
	o.Metric = "length"
	if got := logged(Apply(groups, o))["chosen_in_group_length_mean"]; got != 5 {
		t.Errorf("chosen length %v, want 5", got)
	}
}

func TestScoresThatAreNoNumbers(t *testing.T) {
	nan := math.NaN()
	groups := [][]Member{{{Score: nan}, {Score: 1}}, {{Score: 0}, {Score: 1}}, {{Score: math.Inf(1)}, {Score: 1}}}
	for _, o := range []config.Filter{options("top_p", 1, true), options("top_k", 1, true), options("none", 0, true)} {
		s := Apply(groups, o)
		if !slices.Equal(s.Kept, []int{1}) || !slices.Equal(s.Unscored, []int{0, 2}) ||
			logged(s)["filter_unscored_count"] != 2 {
			t.Errorf("%s: kept %v, unscored %v; want 1 kept", o.Strategy, s.Kept, s.Unscored)
		}
		for name, v := range logged(s) {
			if !statistics.Finite(v) {
				t.Errorf("%s = %v is not a number to log", name, v)
			}
		}
	}
	// Single-member groups have no deviation: kept only when nothing is selected.
	single := [][]Member{{{Score: 1}}, {{Score: 2}}}
	o := options("top_p", 1, true)
	o.Metric = "reward_variance"
	if s := Apply(single, o); len(s.Kept) != 2 {
		t.Errorf("no selection: kept %v of two single-member groups", s.Kept)
	}
	o.Value = .9
	if s := Apply(single, o); len(s.Kept) != 0 {
		t.Errorf("top_p 0.9: kept %v of two groups without a deviation", s.Kept)
	}
}

func TestLossScale(t *testing.T) {
	s := Selection{Metrics: Metrics{Ratio: .25}}
	for mode, want := range map[string]float64{"none": 1, "linear": .25, "sqrt": .5} {
		if got := s.LossScale(mode); got != want {
			t.Errorf("%s: %v, want %v", mode, got, want)
		}
	}
}

// Whatever the scores: indices are distinct and ascending, no kept group ranks below a dropped one, more value never
// keeps fewer, and the order of the groups does not matter.
func TestProperties(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		n := 1 + random.IntN(9)
		scores := make([]float64, n)
		for i := range scores {
			scores[i] = math.Abs(random.NormFloat64()) + 1e-6*float64(i)
		}
		for _, strategy := range []string{"top_p linear", "top_p softmax", "top_k", "min_p"} {
			o := options(strategy, random.Float64(), random.IntN(2) == 0)
			if mode, ok := map[string]string{"top_p linear": "linear", "top_p softmax": "softmax"}[strategy]; ok {
				o.Strategy, o.ProbMode = "top_p", mode
			}
			o.Type = []string{"largest", "smallest"}[random.IntN(2)]
			kept := Apply(scored(scores...), o).Kept
			if !slices.IsSorted(kept) || len(slices.Compact(slices.Clone(kept))) != len(kept) {
				t.Fatalf("%+v of %v: kept %v", o, scores, kept)
			}
			for g := range scores {
				if slices.Contains(kept, g) {
					continue
				}
				for _, k := range kept {
					if o.Type == "largest" && scores[g] > scores[k] || o.Type == "smallest" && scores[g] < scores[k] {
						t.Fatalf("%+v of %v: kept %v, but not %d", o, scores, kept, g)
					}
				}
			}
			more := o
			more.Value = o.Value + (1-o.Value)/2
			if wider := Apply(scored(scores...), more).Kept; o.Strategy != "min_p" && len(wider) < len(kept) {
				t.Fatalf("%+v of %v: %d kept, %d with value %g", o, scores, len(kept), len(wider), more.Value)
			}
			reversed := slices.Clone(scores)
			slices.Reverse(reversed)
			mirrored := Apply(scored(reversed...), o).Kept
			for i, g := range mirrored {
				if kept[len(kept)-1-i] != n-1-g {
					t.Fatalf("%+v of %v: kept %v, reversed %v", o, scores, kept, mirrored)
				}
			}
		}
	}
}
