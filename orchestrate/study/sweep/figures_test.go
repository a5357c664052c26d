package sweep

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"gyre/internal/figure"
	"gyre/internal/statistics"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
)

// logged is a run that has logged some steps.
func logged(steps int, stopped bool) *rundir.Run {
	r := &rundir.Run{}
	for step := range steps + 1 {
		m := map[string]any{"actor/entropy": 2 - float64(step)/10, "val-env/a/success": float64(step) / 20}
		if stopped && step == steps {
			m["early_stopped/reward_variance_collapse"] = 1.0
		}
		r.Records = append(r.Records, metrics.Record{Step: step, Values: m})
	}
	return r
}

// result is that of a run which logged some steps.
func result(seed int, status Status, steps int, rule string) row {
	r := logged(steps, rule != "")
	out := row{Outcome: r.Outcome(), run: &Run{Seed: seed, Status: status}, logged: r}
	out.Rule = rule
	return out
}

func groupOf(label string, coordinates []string, mean statistics.Estimate, rows ...row) group {
	return group{Run: &Run{Condition: label, Coordinates: coordinates}, label: label, mean: mean, rows: rows}
}

// A study of a grid of two axes has all four figures; a run that stopped early is marked where it ended.
func TestStudyFigures(t *testing.T) {
	var list []group
	for i, x := range []string{"0", "0.1"} {
		for k, y := range []string{"1e-06", "1e-05", "0.0001"} {
			mean := 0.1*float64(i) + 0.2*float64(k)
			list = append(list, groupOf("kl="+x+",lr="+y, []string{x, y}, statistics.Estimate{Value: mean, Low: mean - 0.1, High: mean + 0.1},
				result(1, Finished, 10, ""), result(2, StoppedEarly, 6, "reward_variance_collapse")))
		}
	}
	names := map[string]figure.Figure{}
	for _, f := range figures("grid", list) {
		names[f.Name] = f
	}
	for _, name := range []string{"learning_curves.png", "final_success.png", "collapse_timeline.png", "heat_map.png"} {
		if len(names[name].Panels) == 0 {
			t.Errorf("no %s", name)
		}
	}
	if p := names["collapse_timeline.png"].Panels[0]; len(labelled(p)) != 2 || len(p.Y.Names) != 12 {
		t.Errorf("the timeline has the legend %v and rows %v, want two ends and twelve runs", labelled(p), p.Y.Names)
	}
	for _, p := range names["learning_curves.png"].Panels {
		for label := range labelled(p) {
			if !strings.HasSuffix(label, " (1 of 2 stopped early)") {
				t.Errorf("%s: the legend says %q, want how many runs a rule ended", p.Title, label)
			}
		}
	}
	list[2].Coordinates = nil
	for _, f := range figures("grid", list) {
		if f.Name == "heat_map.png" {
			t.Error("a map of conditions that are no grid")
		}
	}
	if out := figures("none", nil); len(out) != 0 {
		t.Errorf("figures of nothing: %v", out)
	}
}

// labelled are the labels of a panel's marks that have values.
func labelled(p figure.Panel) map[string]bool {
	labels := map[string]bool{}
	for _, m := range p.Marks {
		if m.Label != "" && len(m.X) > 0 {
			labels[m.Label] = true
		}
	}
	return labels
}

// Values of a single axis are named with it: a legend of bare numbers says nothing.
func TestLegendsNameWhatVaries(t *testing.T) {
	list := []group{groupOf("0", []string{"kl_coef=0"}, statistics.Estimate{}),
		groupOf("0.001", []string{"kl_coef=0.001"}, statistics.Estimate{}), groupOf("no critic", nil, statistics.Estimate{})}
	got, _ := brief(list)
	if got[0].label != "kl_coef=0" || got[1].label != "kl_coef=0.001" || got[2].label != "no critic" {
		t.Errorf("labels %+v", got)
	}
}

// People read why a run was stopped, not the name of a metric; a rule that is not known here is named as it is.
func TestRulesInWords(t *testing.T) {
	for rule, want := range map[string]string{
		"reward_variance_collapse": "reward variance collapsed", "low_validation_success": "low validation success",
		"empty_filtered_steps": "the filter kept nothing", "own_rule": "own_rule", "": "stopped early by a collapse rule",
	} {
		f := timeline("", []group{groupOf("", nil, statistics.Estimate{}, result(1, StoppedEarly, 3, rule))})
		marks := f.Panels[0].Marks
		if got := marks[len(marks)-1].Text[0]; got != "step 3: "+want {
			t.Errorf("%s: %q, want %q", rule, got, want)
		}
	}
}

// A search of many configurations with long names: values stand for names, and curves are drawn of the best.
func TestManyLongConditions(t *testing.T) {
	var list []group
	for i := range 12 {
		at := []string{fmt.Sprint("train_batch_size=", i), "n_rollout=16", "actor_lr=1e-06"}
		mean := float64(i) / 20
		if i == 11 {
			mean = math.NaN()
		}
		list = append(list, groupOf(strings.Join(at, ","), at, statistics.Estimate{Value: mean, Low: math.NaN(), High: math.NaN()},
			result(1, Paused, 3, "")))
	}
	short, names := brief(list)
	if names != "train_batch_size · n_rollout · actor_lr" || short[3].label != "3 · 16 · 1e-06" ||
		list[3].label == short[3].label {
		t.Errorf("%s: %s, from %s", names, short[3].label, list[3].label)
	}
	if drawn := bestOf(list, 8); len(drawn) != 8 || drawn[0].mean.Value != 3.0/20 || drawn[7].mean.Value != 10.0/20 {
		t.Errorf("the best of them: %+v", drawn)
	}
	for _, f := range figures("many", list) {
		if f.Name == "learning_curves.png" && !strings.Contains(f.Caption, "the best 8 of 12") ||
			!strings.Contains(f.Caption, names) {
			t.Errorf("%s: %s", f.Name, f.Caption)
		}
	}
	if same, names := brief(list[:0:0]); len(same) != 0 || names != "" {
		t.Error("nothing has names")
	}
}
