package plot

import (
	"math"
	"strings"
	"testing"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/recorder"

	"gyre/orchestrate/run/metrics"
)

// A bucket of n groups shows norms per group, so that a large bucket does not look strong by its size, and says why it has no interval.
func TestStrengthIsPerGroup(t *testing.T) {
	b := func(n float64, more map[string]float64) bucket {
		values := map[string]float64{"group_rv_count": n, "task": 6}
		for k, v := range more {
			values[k] = v
		}
		return bucket{values: values, exact: true}
	}
	estimate := map[string]float64{"signal_per_group/task": 0.5}
	whole := map[string]float64{"signal_per_group/task": 0.5, "signal_per_group_low/task": 0.25, "signal_per_group_high/task": 2}
	for _, c := range []struct {
		bucket bucket
		want   strength
	}{
		{b(3, whole), strength{measured: 2, signal: 0.5, low: 0.25, high: 2, hasSignal: true, hasIntervals: true}},
		{b(2, estimate), strength{measured: 3, signal: 0.5, hasSignal: true, why: "2 groups: no interval"}},
		{b(1, nil), strength{measured: 6, why: "1 group: no estimate"}},
		{b(4, nil), strength{measured: 1.5, why: "statistics off"}},
		{bucket{values: map[string]float64{"group_rv_count": 4, "task": 6}}, strength{measured: 6, why: "no estimate in this profile"}},
	} {
		if got, ok := c.bucket.strength("task"); !ok || got != c.want {
			t.Errorf("strength %+v, want %+v", got, c.want)
		}
	}
	if _, ok := b(3, whole).strength("kl"); ok {
		t.Error("KL was not computed")
	}
}

// The sum of two components is a gradient of its own: its norm depends on the angle between them.
func TestSumIsTheNormOfTheSum(t *testing.T) {
	b := bucket{exact: true, values: map[string]float64{"kl": 3, "entropy": 4, "cosine/entropy_kl": 0}}
	if norm, exact, ok := b.together("kl", "entropy"); !ok || !exact || norm != 5 {
		t.Errorf("orthogonal: %v, exact %v", norm, exact)
	}
	b.values["cosine/entropy_kl"] = -1
	if norm, exact, _ := b.together("kl", "entropy"); norm != 1 || !exact {
		t.Errorf("opposed: %v, exact %v", norm, exact)
	}
	delete(b.values, "cosine/entropy_kl")
	if norm, exact, _ := b.together("kl", "entropy"); norm != 7 || exact {
		t.Errorf("of unknown angle: %v, exact %v; want the sum of the norms, named so", norm, exact)
	}
	b.values["kl"] = 0
	if norm, exact, _ := b.together("kl", "entropy"); norm != 4 || !exact {
		t.Errorf("with a zero: %v, exact %v", norm, exact)
	}
}

func TestFiguresShowIntervals(t *testing.T) {
	values := analysed(true)
	for _, name := range []string{"bucket_1", "bucket_2", "all"} {
		p := "grad_norm/" + name + "/"
		values[p+"signal_per_group/task"], values[p+"signal_per_group_low/task"], values[p+"signal_per_group_high/task"] = 0.25, 0.01, 4.0
	}
	s := newStep("run", metrics.Record{Step: 1, Values: values}, postFilter)
	summary, err := s.summary()
	if err != nil {
		t.Fatal(err)
	}
	task := summary.panels[1]
	if task.plot.Y.Max < 4 || math.IsInf(task.plot.Y.Max, 0) || len(task.legend) != 2 || task.legend[1].label != "without noise, 90% interval" {
		t.Errorf("the axis ends at %v, the legend is %v", task.plot.Y.Max, task.legend)
	}
	if n := drawnLines(task, 0.01, 4); n != 2 {
		t.Errorf("%d error bars reach from 0.01 to 4, want one for each of two buckets", n)
	}
	if ticks := task.plot.X.Tick.Marker.Ticks(0, 3); ticks[0].Label != "Q1\n1\n2\n8" || !strings.Contains(task.plot.X.Label.Text, "groups, episodes") {
		t.Errorf("below the first bucket: %q, named %q; want its spread, groups and episodes", ticks[0].Label, task.plot.X.Label.Text)
	}
}

// Figures say what of their norms is noise.
func TestCaptionsWarnOfNoise(t *testing.T) {
	for profile, want := range map[string]string{"exact": "noise, which shrinks as 1/√groups: compare the estimates without noise", "paper": "without intervals, and dependent on a bucket's size"} {
		values := analysed(true)
		values["grad_analysis/profile"] = profile
		record := metrics.Record{Step: 1, Values: values}
		s := newStep("run", record, postFilter)
		norms, err := s.norms()
		if err != nil {
			t.Fatal(err)
		}
		normalized, err := s.normalized()
		if err != nil {
			t.Fatal(err)
		}
		steps, err := compare("steps", []comparedStep{newComparedStep(record, postFilter)})
		if err != nil {
			t.Fatal(err)
		}
		for where, caption := range map[string]string{"norms": norms.caption, "steps": steps.caption} {
			if !strings.Contains(caption, want) {
				t.Errorf("%s, %s: caption %q", profile, where, caption)
			}
		}
		if !strings.Contains(normalized.caption, "these shrink as 1/√n") {
			t.Errorf("%s: caption %q", profile, normalized.caption)
		}
	}
}

// recorded is what a panel draws, and its place for a value of y.
func recorded(p panel) (actions []recorder.Action, y func(float64) vg.Length) {
	var record recorder.Canvas
	canvas := draw.NewCanvas(&record, 4*vg.Inch, 3*vg.Inch)
	p.plot.Draw(canvas)
	data := p.plot.DataCanvas(canvas)
	_, y = p.plot.Transforms(&data)
	return record.Actions, y
}

// drawnLines counts the upright lines that a panel draws from one value of y to another.
func drawnLines(p panel, from, to float64) (n int) {
	actions, y := recorded(p)
	near := func(a, b vg.Length) bool { return math.Abs(float64(a-b)) < 1e-6 }
	for _, action := range actions {
		if s, ok := action.(*recorder.Stroke); ok && len(s.Path) == 2 {
			a, b := s.Path[0].Pos, s.Path[1].Pos
			if near(a.X, b.X) && near(min(a.Y, b.Y), y(from)) && near(max(a.Y, b.Y), y(to)) {
				n++
			}
		}
	}
	return n
}

// drawnTexts are the texts that a panel draws, each with where it begins, and a panel's place for a value of y.
func drawnTexts(p panel) (texts map[string]vg.Point, y func(float64) vg.Length) {
	actions, y := recorded(p)
	texts = map[string]vg.Point{}
	for _, action := range actions {
		if text, ok := action.(*recorder.FillString); ok {
			texts[text.String] = text.Point
		}
	}
	return texts, y
}

// A bar's number stands above its error bar, and below the bar stand the bucket's groups and episodes.
func TestNumbersStandClearOfErrorBars(t *testing.T) {
	f, err := newStep("run", metrics.Record{Step: 1, Values: analysed(true)}, postFilter).spread()
	if err != nil {
		t.Fatal(err)
	}
	texts, y := drawnTexts(f.panels[0])
	for text, whisker := range map[string]float64{"1.00": 1.5, "2.00": 2.5, "3.00": 3.5} {
		if at, ok := texts[text]; !ok || at.Y <= y(whisker) {
			t.Errorf("%s stands at %v (drawn: %v), the end of its error bar at %v", text, at.Y, ok, y(whisker))
		}
	}
	if label := f.panels[0].plot.X.Tick.Marker.Ticks(0, 3)[0].Label; label != "Q1\n1\n2\n8" {
		t.Errorf("below the first bar: %q", label)
	}
}

// Where a bucket has no interval the figure says why; and the norm of a sum is per group as its parts are.
func TestPanelsSayWhyAnIntervalIsMissing(t *testing.T) {
	few := bucket{name: "bucket_1", label: "Q1", exact: true, values: map[string]float64{"group_rv_count": 2, "task": 6, "signal_per_group/task": 0.5}}
	many := bucket{name: "bucket_2", label: "Q2", exact: true, values: map[string]float64{"group_rv_count": 4, "task": 6, "kl": 3, "entropy": 4, "cosine/entropy_kl": 0,
		"signal_per_group/task": 0.5, "signal_per_group_low/task": 0.25, "signal_per_group_high/task": 2}}
	texts, _ := drawnTexts(strengthPanel([]bucket{few, many}, "task", components[2:], "interval"))
	if _, ok := texts["2 groups: no interval"]; !ok {
		t.Errorf("drawn are %v, want why there is no interval", texts)
	}
	if p := strengthPanel([]bucket{many}, sumTitle, regularisers, "interval"); math.Abs(p.plot.Y.Max-1.1*5/4) > 1e-12 {
		t.Errorf("the axis ends at %v, want a little above the norm of the sum per group, 1.25", p.plot.Y.Max)
	}
}
