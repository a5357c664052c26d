// Calibration says of a study of short runs how right their forecasts of the change of the return were:
//
//	gyre sweep configs/studies/forecast.toml model.path=runs/demo-sft/best/actor
//	go run -C scripts ./calibration ../studies/forecast
package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"gyre/internal/statistics"
	"gyre/internal/table"
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
	conditions := map[string][]scored{}
	for _, dir := range dirs {
		found, err := read(filepath.Join(dir, metrics.File))
		if err != nil {
			return err
		}
		condition := filepath.Base(filepath.Dir(dir))
		conditions[condition] = append(conditions[condition], found...)
	}
	t := table.New("runs of", "forecasts", "predicted", "came", "inside", "slope", "left")
	t.Columns[2].Format, t.Columns[3].Format, t.Columns[5].Format, t.Columns[6].Format = "%+.2f", "%+.2f", "%.2f", "%.2f"
	var all []scored
	for _, name := range slices.Sorted(maps.Keys(conditions)) {
		t.Add(summary(name, conditions[name])...)
		all = append(all, conditions[name]...)
	}
	t.Add(summary("all", all)...)
	fmt.Printf("%d runs. Forecasts of the change of the return between validations, against what came:\n\n%s", len(dirs),
		t.Text(table.Width(os.Stdout)))
	return nil
}

// scored is a forecast with the change that came, and whether its interval held it.
type scored struct {
	predicted, came float64
	inside          bool
}

// read gives the forecasts that a run has scored.
func read(path string) (all []scored, err error) {
	for record, err := range metrics.Read(path) {
		if err != nil {
			return nil, err
		}
		predicted, ok := record.Float("forecast/score/predicted")
		if came, known := record.Float("forecast/score/came"); ok && known {
			inside, _ := record.Float("forecast/score/inside")
			all = append(all, scored{predicted, came, inside == 1})
		}
	}
	return all, nil
}

// summary is a row: how often the interval held what came, what a unit of predicted change was worth (the slope through
// the origin), and what share of the squared changes predicting them leaves.
func summary(name string, all []scored) []any {
	if len(all) == 0 {
		return []any{name, 0}
	}
	n := float64(len(all))
	var predicted, came, inside, products, squares, changes, left float64
	for _, f := range all {
		predicted, came = predicted+f.predicted/n, came+f.came/n
		products, squares, changes = products+f.predicted*f.came, squares+f.predicted*f.predicted, changes+f.came*f.came
		left += (f.came - f.predicted) * (f.came - f.predicted)
		if f.inside {
			inside++
		}
	}
	share := statistics.Wilson(inside/n, len(all), forecast.Confidence)
	return []any{name, len(all), predicted, came, table.PercentBetween(share), products / squares, left / changes}
}
