package plot

import (
	"errors"
	"fmt"
	"slices"

	"gyre/internal/figure"
	"gyre/orchestrate/run/rundir"
)

// budgetPanels are the panels of budget.png beside its first.
var budgetPanels = []curves{
	{title: "Steps within the 90 % interval", unit: "steps so far (%)", factor: 100, low: 0, high: 100,
		list: []curve{{key: "budget/coverage"}}},
	{title: "Variance explained by the prediction", unit: "R² over the steps so far", list: []curve{{key: "budget/r2"}}},
	{title: "Episodes of a group", unit: "episodes", low: 0, list: []curve{
		{key: "budget/group_size_max", label: "largest"}, {key: "budget/group_size_min", label: "smallest"},
		{key: "budget/group_size_std", label: "standard deviation"}}},
}

// Budget is the figure of what was expected of a run's budget and what came of it (sampling.budget = "adaptive"). The
// error is that the run has none.
func Budget(r *rundir.Run) (figure.Figure, error) {
	f := figure.Figure{Name: "budget.png", Title: r.Name, Columns: 3, Height: 1.75}
	f.Note("the noise is the variance of the batch's advantage-weighted score; the band is the prediction's 90 % interval")
	x := figure.Axis{Label: "training step", Integer: true}
	lead := curves{title: "Noise of the batch", unit: "variance", low: 0, list: []curve{
		{key: "budget/realised", label: "realised"}, {key: "budget/predicted", label: "predicted"},
		{key: "budget/equal", label: "predicted for groups of equal sizes"}}}.panel(r, x)
	if low, high := r.Series("budget/predicted_low"), r.Series("budget/predicted_high"); len(low) == len(high) {
		band := figure.Mark{Color: figure.Light(figure.Color(1)), Width: 0.1}
		for i, q := range r.Series("budget/predicted") {
			band.Add(float64(q.Step), q.Value)
			band.Low, band.High = append(band.Low, low[i].Value), append(band.High, high[i].Value)
		}
		lead.Marks = slices.Insert(lead.Marks, 0, band)
	}
	lead.Wide = true
	f.Panels = []figure.Panel{lead}
	for _, c := range budgetPanels {
		f.Panels = append(f.Panels, c.panel(r, x))
	}
	if f.Panels = slices.DeleteFunc(f.Panels, figure.Panel.Empty); len(f.Panels) == 0 {
		return f, fmt.Errorf("%s: %w: expected metrics named budget/…", r.Name, ErrNoBudget)
	}
	return f, nil
}

// ErrNoBudget means that a run's episodes were shared out equally.
var ErrNoBudget = errors.New("the run has no adaptive budget (sampling.budget)")
