package plot

import (
	"math"
	"slices"
	"strings"
	"testing"

	"gyre/internal/figure"
	"gyre/orchestrate/config"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
)

// logRun is a run that has logged a map per step, from 0 on.
func logRun(steps ...map[string]any) *rundir.Run {
	r := &rundir.Run{Dir: "run", Name: "run"}
	for step, m := range steps {
		r.Records = append(r.Records, metrics.Record{Step: step, Values: m})
	}
	return r
}

// Success stands first and takes a row of its own, whatever else was logged; the learning rate is drawn; nothing else
// follows of what was not logged.
func TestSuccessComesFirstAndWide(t *testing.T) {
	r := logRun(map[string]any{"val-env/a/success": 0.5, "val-env/a/non-zero/success": 1.0},
		map[string]any{"actor/lr": 5e-5, "actor/entropy": 1.0, "train/a/success": 0.25},
		map[string]any{"actor/lr": 2.5e-4, "actor/entropy": 0.5})
	f := Training(r)
	var titles []string
	for _, p := range f.Panels {
		titles = append(titles, p.Title)
	}
	if got := strings.Join(titles, ", "); got != "Success, Policy entropy, Learning rate" || !f.Panels[0].Wide ||
		f.Panels[1].Wide {
		t.Errorf("panels %s, the first wide: %v", got, f.Panels[0].Wide)
	}
	for _, m := range f.Panels[0].Marks {
		for _, y := range m.Y {
			if y == 100 {
				t.Error("the mean over episodes that succeeded is drawn as a success")
			}
		}
	}
}

func TestMovingAverage(t *testing.T) {
	points := []rundir.Point{{Step: 1, Value: 0}, {Step: 2, Value: 6}, {Step: 3, Value: 0}, {Step: 4, Value: 0}}
	want := []float64{3, 2, 2, 0}
	for i, q := range movingAverage(points, 3) {
		if q.Value != want[i] || q.Step != points[i].Step {
			t.Errorf("value %d is %v, want %v", i, q, want[i])
		}
	}
}

func TestTimesAddUp(t *testing.T) {
	r := &rundir.Run{Records: []metrics.Record{{Step: 1, Values: map[string]any{
		"timing_s/adv": math.Inf(1), "timing_s/gen": 5.0, "timing_s/old_log_prob": 1.0, "timing_s/ref": 2.0,
		"timing_s/step": 10.0, "timing_s/testing": 4.0}}}}
	parts, whole := split(r.Records[0])
	if parts[0] != 5 || parts[1] != 3 || whole != 14 {
		t.Errorf("parts %v of %v s, want rollout 5, log-probs 3, whole 14 (validation comes on top of the step)", parts,
			whole)
	}
	if p := timePanel(r, figure.Axis{}); len(p.Marks) != 4 || p.Marks[0].Label != "other" || p.Marks[0].Y[0] != 14 {
		t.Errorf("layers %+v, want rollout, log-probs and validation below the whole", p.Marks)
	}
}

func TestTerminalHasCurveEndsAndNothingElse(t *testing.T) {
	r, err := rundir.Read(writeRun(t)) // success is step/40 at steps 0, 10, 20, 30
	if err != nil {
		t.Fatal(err)
	}
	out, err := Terminal(r, 80)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimRight(out, "\n"), "\n")
	if first, last := lines[len(lines)-2], lines[len(lines)-1]; first != "  after step 0    0.0 %" ||
		last != "  after step 30   75.0 %" {
		t.Errorf("ends %q and %q", first, last)
	}
	if !strings.Contains(out, "sokoban: validation success in %") ||
		!strings.HasPrefix(strings.TrimSpace(lines[0]), "100") {
		t.Errorf("no curve from 0 to 100 %%:\n%s", out)
	}
	for i, row := range lines[:11] { // the curve rises from the left of the bottom to the right at 75 %
		if strings.ContainsAny(row, "╭╯─") != (i >= 2) {
			t.Errorf("row %d: %q", i, row)
		}
	}
	if _, err := Terminal(logRun(map[string]any{}, map[string]any{"actor/entropy": 0.5}), 80); err == nil ||
		!strings.Contains(err.Error(), "nothing was validated") {
		t.Error(err)
	}
}

// The shares of a run's time add up to the whole, whatever sums and parts of phases were logged beside them.
func TestSharesOfTimeAddUp(t *testing.T) {
	o := rundir.Outcome{Total: 100, Phases: map[string]float64{"gen": 40, "prefill": 10, "decode": 25, "env_wait": 5,
		"update_actor": 30, "testing": 20, "step": 75, "train_total": 75,
		"eval_total": 20, "total": 100, "filter": 0.5}}
	sum, seen := 0.0, ""
	for _, row := range Times(o).Rows {
		seen += row[0].(string) + " "
		if row[0] != "all" {
			sum += row[1].(float64)
		}
	}
	if math.Abs(sum-100) > 1e-9 || seen != "rollout actor validation other all " {
		t.Errorf("%v s of 100 in %s", sum, seen)
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
	// at most. Equal values have no interval.
	if math.Abs(m.Low[0]-(2-12.7062)) > 1e-3 || m.High[0] != 10 || !math.IsNaN(m.Low[1]) {
		t.Errorf("from %v to %v", m.Low, m.High)
	}
}

// A condition of one run has the interval of its validations' episodes and says so; of too many nothing has one.
func TestOneRunHasTheIntervalOfItsEpisodes(t *testing.T) {
	one := logRun(map[string]any{"val-env/a/success": 0.5, "actor/entropy": 1.0})
	one.Config = &config.Config{Validation: config.Validation{Envs: []config.Env{{Tag: "a", Groups: 25, GroupSize: 2}}}}
	list := []Condition{{Label: "one", Runs: []*rundir.Run{one}}}
	f := Conditions("t", list)
	m := f.Panels[0].Marks[1]
	if math.Abs(m.Low[0]-36.645) > 1e-3 || math.Abs(m.High[0]-63.355) > 1e-3 || !strings.Contains(f.Caption, "one run") {
		t.Errorf("from %v to %v of 50 episodes, %q; want Wilson's 36.645 to 63.355", m.Low, m.High, f.Caption)
	}
	for _, m := range f.Panels[1].Marks {
		if m.Low != nil {
			t.Errorf("the entropy of one run has the interval %v to %v", m.Low, m.High)
		}
	}
	many := Conditions("t", slices.Repeat(list, 5))
	if !strings.Contains(many.Caption, "no bands") || many.Panels[0].Marks[1].Low != nil {
		t.Errorf("of five conditions: %q", many.Caption)
	}
}

// Success stands over what a policy had sampled by then: of runs of different steps, where all are on average.
func TestSuccessByTokens(t *testing.T) {
	run := func(each float64) *rundir.Run {
		return logRun(map[string]any{"val-env/a/success": 0.5}, map[string]any{"rollout/new_tokens": each},
			map[string]any{"rollout/new_tokens": each, "val-env/a/success": 0.75})
	}
	f := ByTokens("t", []Condition{{Label: "two", Runs: []*rundir.Run{run(1000), run(3000)}}, {Label: "one",
		Runs: []*rundir.Run{run(500)}}, {Label: "nothing", Runs: []*rundir.Run{logRun()}}})
	want := map[string][]float64{"two": {0, 4}, "one": {0, 1}}
	for _, m := range f.Panels[0].Marks {
		if m.Label != "" && (!slices.Equal(m.X, want[m.Label]) || !slices.Equal(m.Y, []float64{50, 75})) {
			t.Errorf("%s lies at %v, %v, want %v, [50 75]", m.Label, m.X, m.Y, want[m.Label])
		}
		delete(want, m.Label)
	}
	if len(want) > 0 {
		t.Errorf("not drawn: %v", want)
	}
	if f := ByTokens("t", []Condition{{Runs: []*rundir.Run{logRun(map[string]any{"val-env/a/success": 0.5})}}}); len(f.Panels) > 0 {
		t.Error("a figure of runs that sampled nothing")
	}
}

// The shares of a step stand on one another up to the whole; without them there is neither panel nor bar.
func TestUsefulWorkIsStacked(t *testing.T) {
	step := map[string]any{"timing_s/step": 2.0, "perf/useful": 0.5, "perf/lost/sampling": 0.25, "perf/lost/log_probs": 0.0,
		"perf/lost/update": 0.125, "perf/lost/environments": 0.0, "perf/lost/other": 0.125}
	r := logRun(map[string]any{"timing_s/step": 1.0}, step)
	var tops []float64
	for _, m := range usefulPanel(r, figure.Axis{}).Marks {
		tops = append(tops, m.Y[0])
	}
	if want := []float64{100, 87.5, 87.5, 75, 75, 50}; !slices.Equal(tops, want) {
		t.Errorf("layers up to %v, want %v", tops, want)
	}
	out := usefulBar(r, 80)
	lines := strings.Split(out, "\n")
	if n := strings.Count(lines[1], "█"); n != strings.Count(lines[1], "▓")*2 || n == 0 ||
		!strings.Contains(out, "█ utilization 50.0 %") {
		t.Errorf("in the terminal:\n%s", out)
	}
	if p := usefulPanel(logRun(map[string]any{"timing_s/step": 1.0}), figure.Axis{}); !p.Empty() {
		t.Error("a panel of unknown shares")
	}
}
