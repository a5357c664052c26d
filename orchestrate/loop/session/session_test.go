package session

import (
	"maps"
	"path/filepath"
	"testing"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/advantage"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/run/metrics"
)

// The configuration's coefficient counts. A controller that has adapted it goes on only under the configuration that
// it began with.
func TestPenaltyFollowsTheConfiguration(t *testing.T) {
	fixed := config.Algorithm{KLIn: "reward", KLCoef: 0.1, KLControl: "fixed", KLTarget: 0.2, KLHorizon: 100}
	adaptive := fixed
	adaptive.KLControl = "adaptive"
	other, target := adaptive, adaptive
	other.KLCoef, target.KLTarget = 0.5, 0.3
	loss := fixed
	loss.KLIn = "loss"
	for _, x := range []struct {
		name        string
		first, then config.Algorithm
		adapted     float64 // what the coefficient had become
		want        float64
		told        bool
	}{
		{"adaptive goes on", adaptive, adaptive, 0.13, 0.13, false},
		{"another coefficient", adaptive, other, 0.13, 0.5, true},
		{"another target", adaptive, target, 0.13, 0.1, true},
		{"fixed now", adaptive, fixed, 0.13, 0.1, true},
		{"fixed before", fixed, adaptive, 0.1, 0.1, false},
		{"fixed, another", fixed, config.Algorithm{KLIn: "reward", KLCoef: 0.3, KLControl: "fixed"}, 0.1, 0.3, true},
	} {
		var s State
		if c, note := s.Penalty(x.first); c == nil || note != "" {
			t.Fatalf("%s: a new run has %v, %q", x.name, c, note)
		}
		s.Step, s.KL.Coef = 3, x.adapted
		c, note := s.Penalty(x.then)
		if c.Coef != x.want || (note != "") != x.told {
			t.Errorf("%s: coefficient %v, told %q; want %v", x.name, c.Coef, note, x.want)
		}
		if adapts := x.then.KLControl == "adaptive"; (c.Horizon > 0) != adapts {
			t.Errorf("%s: %+v", x.name, *c)
		}
	}
	s := State{KL: advantage.Controller{Coef: 1}}
	if c, _ := s.Penalty(loss); c != nil {
		t.Errorf("a KL term in the loss has the penalty %+v", c)
	}
}

// Totals go on where the metrics end that a run continues from.
func TestTotalsGoOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), metrics.File)
	l, err := metrics.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	var first Totals
	for step, values := range []map[string]any{{"timing_s/testing": 1.0}, {"timing_s/step": 2.0},
		{"timing_s/step": 4.0, "timing_s/testing": 8.0, "timing_s/checkpoint": 16.0}} {
		first.Into(values)
		if err := l.Log(step, values); err != nil {
			t.Fatal(err)
		}
	}
	l.Close()
	second, err := readTotals(path)
	if err != nil || second != first {
		t.Errorf("read %+v, want %+v (%v)", second, first, err)
	}
	values := map[string]any{"timing_s/step": 32.0}
	second.Into(values)
	if values["timing_s/train_total"] != 38.0 || values["timing_s/eval_total"] != 9.0 ||
		values["timing_s/total"] != 63.0 {
		t.Errorf("totals %v", values)
	}
}

func TestFamiliarNamesOfValidations(t *testing.T) {
	played := func(group int, tag string, reward float64, success bool) *episode.Episode {
		return &episode.Episode{Group: group, Tag: tag, Success: success, Rewards: []episode.Reward{{Value: reward}}}
	}
	m := coreValidation([]*episode.Episode{played(4, "a", 2, true), played(4, "a", 6, false), played(1, "b", 1, false)}).
		Floats()
	want := map[string]float64{
		"val-core/a/reward/mean@2": 4, "val-core/a/reward/best@2": 6, "val-core/a/reward/worst@2": 2,
		"val-core/a/acc/mean@2": 0.5, "val-core/a/acc/best@2": 1, "val-core/a/acc/worst@2": 0,
		"val-core/b/reward/mean@1": 1, "val-core/b/acc/mean@1": 0,
	}
	if !maps.Equal(m, want) {
		t.Errorf("got %v\nwant %v", m, want)
	}
}

// Validation replies without log-probs have unknown ones.
func TestLogprobsOfRepliesWithoutThem(t *testing.T) {
	e := &episode.Episode{IDs: []int32{1, 2, 3, 4}, Mask: []bool{false, false, true, true}}
	turn := episode.Turn{Reply: 2, End: 4}
	if got := logprobsOf(e, turn); len(got) != 2 || got[0] != nil || got[1] != nil {
		t.Errorf("%v", got)
	}
	e.Logprob = []float32{0, 0, -.5, -.25}
	if got := logprobsOf(e, turn); len(got) != 2 || *got[0] != -.5 || *got[1] != -.25 {
		t.Errorf("%v", got)
	}
}
