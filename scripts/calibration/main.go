// Calibration says of a study of short runs how right their forecasts were, how early the collapse alarms came, and how
// often they were false:
//
//	gyre sweep configs/studies/forecast.toml model.path=runs/demo-sft/best/actor
//	go run ./scripts/calibration studies/forecast
//
// The runs have stopped at no alarm. The rules of [early_stop] are played again on what they logged.
package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"gyre/internal/statistics"
	"gyre/internal/table"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/collapse"
	"gyre/orchestrate/loop/forecast"
	"gyre/orchestrate/run/metrics"
)

func main() {
	if err := calibrate(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "calibration:", err)
		os.Exit(1)
	}
}

func calibrate(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("expected the folder of a study, got %q", args)
	}
	dirs, err := filepath.Glob(filepath.Join(args[0], "runs", "*", "seed_*"))
	if err != nil || len(dirs) == 0 {
		return cmp.Or(err, fmt.Errorf("%s has no runs: expected runs/CONDITION/seed_N", args[0]))
	}
	var list []run
	for _, dir := range dirs {
		r, err := read(dir)
		if err != nil {
			return err
		}
		list = append(list, r)
	}
	width := table.Width(os.Stdout)
	fmt.Printf("%d runs. Forecasts of the change of the return between validations, against what came:\n\n%s\n",
		len(list), forecasts(list).Text(width))
	fmt.Printf("Alarms: a run has collapsed at the step from which on its success in training stays below half of "+
		"the\nbest before. Lead: steps from the alarm to that step; below 0 it came later.\n\n%s",
		alarms(list).Text(width))
	return nil
}

// run is what a run has logged, line by line.
type run struct {
	condition string
	steps     []int
	lines     []map[string]float64
}

func read(dir string) (run, error) {
	r := run{condition: filepath.Base(filepath.Dir(dir))}
	for record, err := range metrics.Read(filepath.Join(dir, "metrics.jsonl")) {
		if err != nil {
			return r, err
		}
		r.steps, r.lines = append(r.steps, record.Step), append(r.lines, metrics.Line(record.Values).Floats())
	}
	return r, nil
}

// forecasts is a row per condition and one for all: how often the interval held what came, what a unit of predicted
// change was worth (the slope through the origin), and what share of the squared changes predicting them leaves.
func forecasts(list []run) *table.Table {
	t := table.New("runs of", "forecasts", "predicted", "came", "inside", "slope", "left")
	t.Columns[2].Format, t.Columns[3].Format, t.Columns[5].Format, t.Columns[6].Format = "%+.2f", "%+.2f", "%.2f", "%.2f"
	var names []string
	for _, r := range list {
		if !slices.Contains(names, r.condition) {
			names = append(names, r.condition)
		}
	}
	for _, name := range append(names, "all") {
		var predicted, came []float64
		inside, with, squares, changes, left := 0, 0.0, 0.0, 0.0, 0.0
		for _, r := range list {
			for _, line := range r.lines {
				p, scored := line["forecast/score/predicted"]
				if c := line["forecast/score/came"]; scored && (name == "all" || r.condition == name) {
					predicted, came = append(predicted, p), append(came, c)
					inside += int(line["forecast/score/inside"])
					with, squares, changes, left = with+p*c, squares+p*p, changes+c*c, left+(c-p)*(c-p)
				}
			}
		}
		if len(came) == 0 {
			t.Add(name, 0)
			continue
		}
		share := float64(inside) / float64(len(came))
		low, high := statistics.Wilson(share, len(came), forecast.Confidence)
		t.Add(name, len(came), statistics.Mean(predicted), statistics.Mean(came),
			table.PercentBetween(share, low, high), with/squares, left/changes)
	}
	return t
}

// rule is an alarm: it sees a run line by line, and says when it goes off.
type rule struct {
	name string
	of   func() func(line map[string]float64) bool
}

// rules are those of [early_stop], as they stand and for shorter runs, and one of the forecasts.
func rules() []rule {
	short := func(e *collapse.EarlyStop, c config.EarlyStop) func(map[string]float64) bool {
		return func(line map[string]float64) bool {
			empty, played := line["rollout/empty_after_filter"]
			var stop *collapse.StoppedEarly
			if played {
				stop = e.Selected(empty == 1, c)
			}
			if std, measured := line["rollout/in_group_reward_std"]; stop == nil && measured && empty == 0 {
				stop = e.RewardStd(std, c)
			}
			validation := maps.Clone(line)
			maps.DeleteFunc(validation, func(name string, _ float64) bool {
				return !strings.HasPrefix(name, "val-env/")
			})
			if stop == nil {
				stop = e.Validated(validation, c)
			}
			return stop != nil
		}
	}
	early := func(c config.EarlyStop) func() func(map[string]float64) bool {
		return func() func(map[string]float64) bool { return short(&collapse.EarlyStop{}, c) }
	}
	return []rule{
		{"reward spread below 0.1 for 10 steps", early(config.EarlyStop{SpreadFraction: 0.1, SpreadWindow: 10})},
		{"reward spread below 0.1 for 3 steps", early(config.EarlyStop{SpreadFraction: 0.1, SpreadWindow: 3})},
		{"reward spread below 0.5 for 3 steps", early(config.EarlyStop{SpreadFraction: 0.5, SpreadWindow: 3})},
		{"filter empty for 5 steps", early(config.EarlyStop{EmptySteps: 5})},
		{"filter empty for 2 steps", early(config.EarlyStop{EmptySteps: 2})},
		{"success below 1 % in 2 validations", early(config.EarlyStop{LowSuccess: 0.01, LowSuccessCount: 2})},
		{"return below its forecast's interval", func() func(map[string]float64) bool {
			return func(line map[string]float64) bool {
				low, scored := line["forecast/score/low"]
				return scored && line["forecast/score/came"] < low
			}
		}},
	}
}

// collapsed is the step from which on success in training stays below half of the best before, for three at
// least; false if it does not.
func (r run) collapsed() (step int, ok bool) {
	best := 0.0
	for i, line := range r.lines {
		for name, success := range line {
			if matched, _ := path.Match("train/*/success", name); !matched {
				continue
			}
			if success >= best/2 || r.steps[len(r.steps)-1]-r.steps[i] < 2 && !ok {
				ok = false
			} else if !ok {
				step, ok = r.steps[i], true
			}
			best = max(best, success)
		}
	}
	return step, ok
}

// alarms is a row per rule: in how many of the collapsed runs it went off, how many steps before the collapse, and in
// how many of the others.
func alarms(list []run) *table.Table {
	t := table.New("alarm", "collapsed runs", "went off", "median lead", "earliest", "latest", "other runs", "false")
	for _, rule := range rules() {
		var leads []float64
		gone, collapsed, others, wrong := 0, 0, 0, 0
		for _, r := range list {
			off, goes := -1, rule.of()
			for i, line := range r.lines {
				if goes(line) {
					off = r.steps[i]
					break
				}
			}
			at, has := r.collapsed()
			switch {
			case has && off >= 0:
				gone, collapsed, leads = gone+1, collapsed+1, append(leads, float64(at-off))
			case has:
				collapsed++
			case off >= 0:
				wrong, others = wrong+1, others+1
			default:
				others++
			}
		}
		row := []any{rule.name, collapsed, gone, nil, nil, nil, others, wrong}
		if len(leads) > 0 {
			row[3], row[4], row[5] = statistics.Quantile(0.5, leads), slices.Max(leads), slices.Min(leads)
		}
		t.Add(row...)
	}
	return t
}
