package filter

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

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
func logged(s Result) map[string]float64 {
	line := log.Line{}
	line.Add(s.Metrics)
	return line.Floats()
}

// TestSelection applies the options of a directive to the groups below it.
func TestSelection(t *testing.T) {
	datadriven.RunTest(t, "testdata/selection", func(t *testing.T, d *datadriven.TestData) string {
		o, show := directive(t, d)
		s := Apply(rowsOf(t, d), o)
		out := "kept " + indices(s.Kept)
		if len(s.Unscored) > 0 {
			out += ", unscored " + indices(s.Unscored)
		}
		line := logged(s)
		for name, v := range line {
			if !statistics.Finite(v) {
				d.Fatalf(t, "%s = %v is not a number to log", name, v)
			}
		}
		for _, name := range show {
			if v, ok := line[name]; ok {
				out += fmt.Sprintf("\n%s = %.12g", name, v)
			} else if name == "deviations" {
				out += fmt.Sprintf("\n%s = %s", name, strings.Trim(fmt.Sprintf("%.7g", s.Std), "[]"))
			} else {
				out += "\n" + name + " is not logged"
			}
		}
		return out
	})
}

// directive reads the options of a directive, and the metrics that it asks for.
func directive(t *testing.T, d *datadriven.TestData) (o config.Filter, show []string) {
	o = options(d.CmdArgs[0].Key, 0, false)
	for _, arg := range d.CmdArgs[1:] {
		switch arg.Key {
		case "value":
			arg.Scan(t, 0, &o.Value)
		case "mode":
			arg.Scan(t, 0, &o.ProbMode)
		case "type":
			arg.Scan(t, 0, &o.Type)
		case "metric":
			arg.Scan(t, 0, &o.Metric)
		case "include_zero":
			o.IncludeZero = true
		case "show":
			show = arg.Vals
		default:
			d.Fatalf(t, "%s is no option", arg.Key)
		}
	}
	return o, show
}

// rowsOf reads the groups of a directive: see testdata/selection.
func rowsOf(t *testing.T, d *datadriven.TestData) (groups [][]Member) {
	number := func(text string) float64 {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		return x
	}
	if d.Cmd == "scores" {
		var scores []float64
		for _, word := range strings.Fields(d.Input) {
			scores = append(scores, number(word))
		}
		return scored(scores...)
	}
	for line := range strings.Lines(d.Input) {
		var group []Member
		for _, word := range strings.Fields(line) {
			parts := append(strings.Split(word, "/"), "0", "0")
			group = append(group, Member{number(parts[0]), number(parts[1]), int(number(parts[2]))})
		}
		groups = append(groups, group)
	}
	return groups
}

func indices(list []int) string {
	if len(list) == 0 {
		return "nothing"
	}
	return strings.Trim(fmt.Sprint(list), "[]")
}

func TestLossScale(t *testing.T) {
	s := Result{Metrics: Metrics{Ratio: .25}}
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
