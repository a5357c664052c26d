package plot

import (
	"fmt"
	"math"
	"testing"
)

// Values that are not defined are gaps: nothing is drawn across them, and a band ends where either of its bounds does.
func TestGapsAreNotBridged(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		columns [][]float64
		want    string
	}{
		{[][]float64{{1, 2, 3, 4}}, "[[0 1 2 3]]"},
		{[][]float64{{nan, 2, nan, 4}}, "[[1] [3]]"},
		{[][]float64{{1, 2, nan, 4}, {1, nan, 3, 4}}, "[[0] [3]]"},
		{[][]float64{{nan, nan, nan, nan}}, "[]"},
	} {
		if got := fmt.Sprint(defined([]float64{0, 1, 2, 3}, c.columns...)); got != c.want {
			t.Errorf("%v: %v, want %v", c.columns, got, c.want)
		}
	}
}

// An axis shows its bounds and every value, band and reference beside them.
func TestChartsCutNothingOff(t *testing.T) {
	nan := math.NaN()
	curve := Line{Label: "a", X: []float64{1, 2, 3}, Y: []float64{0.2, nan, 0.4}}
	for name, c := range map[string]struct {
		chart     Chart
		low, high float64
	}{
		"its values":            {Chart{Lines: []Line{curve}, Reference: nan}, 0.2, 0.4},
		"the bounds it must":    {Chart{Lines: []Line{curve}, Within: [2]float64{0, 1}, Reference: nan}, 0, 1},
		"values beyond them":    {Chart{Lines: []Line{curve, {X: []float64{1}, Y: []float64{3}}}, Within: [2]float64{0, 1}, Reference: nan}, 0, 3},
		"a reference":           {Chart{Lines: []Line{curve}, Reference: -1}, -1, 0.4},
		"a band":                {Chart{Lines: []Line{{X: curve.X, Y: curve.Y, Low: []float64{0, 0, nan}, High: []float64{1, 2, 9}}}, Reference: nan}, 0, 2},
		"a single, flat, value": {Chart{Lines: []Line{{X: []float64{5}, Y: []float64{2}}}, Reference: nan}, 2, 2},
	} {
		p := c.chart.panel().plot
		if !(p.Y.Min < c.low && p.Y.Max > c.high) {
			t.Errorf("%s: the axis runs from %v to %v, and does not show %v to %v", name, p.Y.Min, p.Y.Max, c.low, c.high)
		}
		if span := max(c.high-c.low, 1); p.Y.Min < c.low-span || p.Y.Max > c.high+span {
			t.Errorf("%s: the axis runs from %v to %v, far beyond %v to %v", name, p.Y.Min, p.Y.Max, c.low, c.high)
		}
		if !(p.X.Min < p.X.Max) {
			t.Errorf("%s: the x axis runs from %v to %v", name, p.X.Min, p.X.Max)
		}
	}
	if empty := (Chart{Title: "x", Lines: []Line{{X: []float64{1}, Y: []float64{nan}}}}).panel(); len(empty.legend) != 0 || empty.title != "x" {
		t.Errorf("a chart without values has %+v", empty)
	}
}

// A figure of one chart with many names has room for all of them.
func TestLinesGrowWithTheirNames(t *testing.T) {
	names := make([]string, 40)
	few := Lines("f", "t", "c", 1, Chart{Names: names[:3]}).figure
	many := Lines("f", "t", "c", 1, Chart{Names: names}).figure
	both := Lines("f", "t", "c", 2, Chart{}, Chart{}).figure
	if !(many.width > few.width && few.width > both.width) || len(both.panels) != 2 {
		t.Errorf("widths %v, %v and %v of two charts", few.width, many.width, both.width)
	}
}

// People read why a run was stopped, not the name of a metric; a rule that is not known here is named as it is.
func TestRulesInWords(t *testing.T) {
	for rule, want := range map[string]string{
		"reward_variance_collapse": "reward spread collapsed", "low_validation_success": "low validation success",
		"empty_filtered_steps": "the filter kept nothing", "own_rule": "own_rule",
	} {
		if got := ruleText(StudyRun{Rule: rule, Status: "stopped_early"}); got != want {
			t.Errorf("%s: %q, want %q", rule, got, want)
		}
	}
	for status := range ends {
		if ruleText(StudyRun{Status: status}) != ends[status].label {
			t.Error(status)
		}
	}
}
