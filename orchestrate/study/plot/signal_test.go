package plot

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"gyre/orchestrate/run/metrics"
)

// A bucket of n groups shows norms per group, so that a large bucket does not look strong by its size, and says why it
// has no interval.
func TestStrengthIsPerGroup(t *testing.T) {
	b := func(n float64, more map[string]float64) bucket {
		values := map[string]float64{"group_rv_count": n, "task": 6}
		for k, v := range more {
			values[k] = v
		}
		return bucket{values: values, exact: true}
	}
	nan, estimate := math.NaN(), map[string]float64{"signal_per_group/task": 0.5}
	whole := map[string]float64{"signal_per_group/task": 0.5, "signal_per_group_low/task": 0.25,
		"signal_per_group_high/task": 2}
	for _, c := range []struct {
		bucket bucket
		want   strength
	}{
		{b(3, whole), strength{measured: 2, signal: 0.5, low: 0.25, high: 2}},
		{b(2, estimate), strength{measured: 3, signal: 0.5, low: nan, high: nan, why: "2 groups: no interval"}},
		{b(1, nil), strength{measured: 6, signal: nan, low: nan, high: nan, why: "1 group: no estimate"}},
		{b(4, nil), strength{measured: 1.5, signal: nan, low: nan, high: nan, why: "statistics off"}},
		{bucket{values: map[string]float64{"group_rv_count": 4, "task": 6}},
			strength{measured: 6, signal: nan, low: nan, high: nan, why: "no estimate in this profile"}},
	} {
		if got := c.bucket.strength("task"); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("strength %+v, want %+v", got, c.want)
		}
	}
	if s := b(3, whole).strength("kl"); !math.IsNaN(s.measured) || s.why != "" {
		t.Error("KL was not computed")
	}
}

// The sum of two components is a gradient of its own: its norm depends on the angle between them.
func TestSumIsTheNormOfTheSum(t *testing.T) {
	b := bucket{exact: true, values: map[string]float64{"kl": 3, "entropy": 4, "cosine/entropy_kl": 0}}
	if norm, exact := b.together("kl", "entropy"); !exact || norm != 5 {
		t.Errorf("orthogonal: %v, exact %v", norm, exact)
	}
	b.values["cosine/entropy_kl"] = -1
	if norm, exact := b.together("kl", "entropy"); norm != 1 || !exact {
		t.Errorf("opposed: %v, exact %v", norm, exact)
	}
	delete(b.values, "cosine/entropy_kl")
	if norm, exact := b.together("kl", "entropy"); norm != 7 || exact {
		t.Errorf("of unknown angle: %v, exact %v; want the sum of the norms, named so", norm, exact)
	}
	b.values["kl"] = 0
	if norm, exact := b.together("kl", "entropy"); norm != 4 || !exact {
		t.Errorf("with a zero: %v, exact %v", norm, exact)
	}
}

func TestFiguresShowIntervals(t *testing.T) {
	values := analysed(true)
	for _, name := range []string{"bucket_1", "bucket_2", "all"} {
		p := "grad_norm/" + name + "/"
		values[p+"signal_per_group/task"], values[p+"signal_per_group_low/task"],
			values[p+"signal_per_group_high/task"] = 0.25, 0.01, 4.0
	}
	f := newStep("run", metrics.Record{Step: 1, Values: values}, postFilter).summary()
	p := f.Panels[0]
	estimate := p.Marks[1]
	if estimate.Label != "without noise, 90% interval" || !math.IsNaN(estimate.Y[2]) || estimate.Low[0] != 0.01 ||
		estimate.High[1] != 4 {
		t.Errorf("the estimates are %+v", estimate)
	}
	// The ranges of the groups' standard deviations and their number stand below each bucket, and the
	// axis says what they are.
	if want := []string{"Q1\n0.5\n1.5\n2", "Q2\n1.5\n2.5\n2", "Q10\n2.5\n3.5\n2"}; !slices.Equal(p.X.Names, want) ||
		p.X.Label != "below each bucket: std from, to, groups" {
		t.Errorf("below the buckets: %q, %s; want %q", p.X.Names, p.X.Label, want)
	}
}

// Figures say what of their norms is noise.
func TestCaptionsWarnOfNoise(t *testing.T) {
	for profile, want := range map[string]string{"exact": "noise, which shrinks as 1/√groups: compare the estimates " +
		"without noise", "paper": "without intervals, and dependent on a bucket's size"} {
		values := analysed(true)
		values["grad_analysis/profile"] = profile
		record := metrics.Record{Step: 1, Values: values}
		s := newStep("run", record, postFilter)
		norms, normalized := s.norms(), s.normalized()
		steps, err := compareSteps("steps", []analysis{s.analysis})
		if err != nil {
			t.Fatal(err)
		}
		for where, caption := range map[string]string{"norms": norms.Caption, "steps": steps.Caption} {
			if !strings.Contains(caption, want) {
				t.Errorf("%s, %s: caption %q", profile, where, caption)
			}
		}
		if !strings.Contains(normalized.Caption, "these shrink as 1/√n") {
			t.Errorf("%s: caption %q", profile, normalized.Caption)
		}
	}
}

// Where a bucket has no interval the figure says why; and the norm of a sum is per group as its parts are.
func TestPanelsSayWhyAnIntervalIsMissing(t *testing.T) {
	few := bucket{name: "bucket_1", label: "Q1", exact: true,
		values: map[string]float64{"group_rv_count": 2, "task": 6, "signal_per_group/task": 0.5}}
	many := bucket{name: "bucket_2", label: "Q2", exact: true,
		values: map[string]float64{"group_rv_count": 4, "task": 6, "kl": 3, "entropy": 4, "cosine/entropy_kl": 0,
			"signal_per_group/task": 0.5, "signal_per_group_low/task": 0.25, "signal_per_group_high/task": 2}}
	p := strengthPanel([]bucket{few, many}, "task", task, "interval")
	if words := p.Marks[2].Text; len(words) != 1 || words[0] != "2 groups: no interval" {
		t.Errorf("written are %q, want why there is no interval", words)
	}
	if p := strengthPanel([]bucket{many}, "both", regularisers, "interval"); p.Marks[len(p.Marks)-1].Y[0] != 5.0/4 {
		t.Errorf("%+v, want the norm of the sum per group, 1.25", p.Marks)
	}
}
