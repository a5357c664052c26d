package plot

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gyre/internal/figure"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
)

func logged(t *testing.T, steps int, stopped bool) *rundir.Run {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	l, err := metrics.Open(filepath.Join(dir, metrics.File))
	if err != nil {
		t.Fatal(err)
	}
	for step := range steps + 1 {
		m := map[string]any{"actor/entropy": 2 - float64(step)/10, "val-env/a/success": float64(step) / 20}
		if stopped && step == steps {
			m["early_stopped/reward_variance_collapse"] = 1.0
		}
		if err := l.Log(step, m); err != nil {
			t.Fatal(err)
		}
	}
	l.Close()
	r, err := rundir.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A study of a grid of two axes has all four figures; a run that stopped early is marked where it ended.
func TestStudyFigures(t *testing.T) {
	var list []StudyCondition
	for i, x := range []string{"0", "0.1"} {
		for k, y := range []string{"1e-06", "1e-05", "0.0001"} {
			mean := 0.1*float64(i) + 0.2*float64(k)
			list = append(list, StudyCondition{Label: "kl=" + x + ",lr=" + y, Coordinates: []string{x, y}, Mean: mean,
				Low: mean - 0.1, High: mean + 0.1, Runs: []StudyRun{
					{Seed: 1, Status: "finished", Steps: 10, Success: mean, Run: logged(t, 10, false)},
					{Seed: 2, Status: "stopped_early", Rule: "reward_variance_collapse", Steps: 6, Success: mean,
						Run: logged(t, 6, true)}}})
		}
	}
	names := map[string]figure.Figure{}
	for _, f := range Study("grid", list) {
		names[f.Name] = f
		if path := os.Getenv("GYRE_TEST_FIGURES"); path != "" {
			file, err := os.Create(filepath.Join(path, f.Name))
			if err != nil {
				t.Fatal(err)
			}
			if err := f.PNG(file, 110); err != nil {
				t.Fatal(err)
			}
			file.Close()
		}
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
	for _, f := range Study("grid", list) {
		if f.Name == "heat_map.png" {
			t.Error("a map of conditions that are no grid")
		}
	}
	if out := Study("none", nil); len(out) != 0 {
		t.Errorf("figures of nothing: %v", out)
	}
}

// The mean goes as far as all runs do: beyond that it would be of those that survived.
func TestMeanOverSeedsEndsWithTheShortest(t *testing.T) {
	percent := conditionPanel{factor: 1, least: math.Inf(-1), most: 10}
	m := percent.mean([][]rundir.Point{{{Step: 0, Value: 1}, {Step: 1, Value: 2}, {Step: 2, Value: 9}},
		{{Step: 0, Value: 3}, {Step: 1, Value: 2}}})
	if len(m.Y) != 2 || m.Y[0] != 2 || m.Y[1] != 2 {
		t.Errorf("mean %v", m.Y)
	}
	// Student's quantile for one degree of freedom is 12.706; the deviation of 1 and 3 over √2 is 1. Values can be 10
	// at most.
	if math.Abs(m.Low[0]-(2-12.7062)) > 1e-3 || m.High[0] != 10 || m.Low[1] != 2 {
		t.Errorf("from %v to %v", m.Low, m.High)
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
	list := []StudyCondition{{Label: "0", Coordinates: []string{"kl_coef=0"}},
		{Label: "0.001", Coordinates: []string{"kl_coef=0.001"}}, {Label: "no critic"}}
	got, _ := brief(list)
	if got[0].Label != "kl_coef=0" || got[1].Label != "kl_coef=0.001" || got[2].Label != "no critic" {
		t.Errorf("labels %+v", got)
	}
}

// People read why a run was stopped, not the name of a metric; a rule that is not known here is named as it is.
func TestRulesInWords(t *testing.T) {
	for rule, want := range map[string]string{
		"reward_variance_collapse": "reward variance collapsed", "low_validation_success": "low validation success",
		"empty_filtered_steps": "the filter kept nothing", "own_rule": "own_rule", "": "stopped early by a collapse rule",
	} {
		f := timeline("", []StudyCondition{{Runs: []StudyRun{{Rule: rule, Status: "stopped_early", Steps: 3}}}})
		marks := f.Panels[0].Marks
		if got := marks[len(marks)-1].Text[0]; got != "step 3: "+want {
			t.Errorf("%s: %q, want %q", rule, got, want)
		}
	}
}

// A search of many configurations with long names: values stand for names, and curves are drawn of the best.
func TestManyLongConditions(t *testing.T) {
	var list []StudyCondition
	for i := range 12 {
		at := []string{fmt.Sprint("train_batch_size=", i), "n_rollout=16", "actor_lr=1e-06"}
		mean := float64(i) / 20
		if i == 11 {
			mean = math.NaN()
		}
		list = append(list, StudyCondition{Label: strings.Join(at, ","), Coordinates: at, Mean: mean, Low: math.NaN(),
			High: math.NaN(),
			Runs: []StudyRun{{Seed: 1, Status: "paused", Steps: 3, Success: mean, Run: logged(t, 3, false)}}})
	}
	short, names := brief(list)
	if names != "train_batch_size · n_rollout · actor_lr" || short[3].Label != "3 · 16 · 1e-06" ||
		list[3].Label == short[3].Label {
		t.Errorf("%s: %s, from %s", names, short[3].Label, list[3].Label)
	}
	if drawn := best(list, 8); len(drawn) != 8 || drawn[0].Mean != 3.0/20 || drawn[7].Mean != 10.0/20 {
		t.Errorf("the best of them: %+v", drawn)
	}
	for _, f := range Study("many", list) {
		if f.Name == "learning_curves.png" && !strings.Contains(f.Caption, "the best 8 of 12") ||
			!strings.Contains(f.Caption, names) {
			t.Errorf("%s: %s", f.Name, f.Caption)
		}
	}
	if same, names := brief(list[:0:0]); len(same) != 0 || names != "" {
		t.Error("nothing has names")
	}
}
