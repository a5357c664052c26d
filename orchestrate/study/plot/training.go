package plot

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"gyre/internal/statistics"
	"gyre/orchestrate/run/rundir"
)

// trainingPanels are the panels of training.png in their order; those without data are left out.
var trainingPanels = []curves{
	{title: "Success rate", unit: "episodes (%)", factor: 100, low: 0, high: 100, list: []curve{
		{key: "train/*/success", label: "training"},
		{key: "val-env/*/success", label: "validation", validation: true, share: true},
	}},
	{title: "Return", unit: "mean return per episode", list: []curve{
		{key: "train/charts/avg_episode_return", label: "training"},
		{key: "val-env/charts/avg_episode_return", label: "validation", validation: true},
		{key: "critic/score/mean", label: "score of kept episodes"},
	}},
	{title: "Turns with a valid action", unit: "turns (%)", factor: 100, low: 0, high: 100, list: []curve{
		{key: "train/*/action_is_valid", label: "training"},
		{key: "val-env/*/action_is_valid", label: "validation", validation: true},
	}},
	{title: "Reward spread", unit: "in-group std of returns", list: []curve{
		{key: "rollout/in_group_reward_std", label: "all groups"},
		{key: "rollout/chosen_in_group_reward_std", label: "kept groups"},
	}},
	{title: "Groups kept by the filter", unit: "groups (%)", factor: 100, low: 0, high: 100, list: []curve{
		{key: "rollout/filter_kept_ratio"},
	}},
	{title: "Policy entropy", unit: "nats per token", list: []curve{{key: "actor/entropy"}}},
	{title: "Policy change per update", unit: "KL(old || new) (nats)", list: []curve{{key: "actor/ppo_kl"}}},
	{title: "Distance to the reference", unit: "KL (nats per token)", list: []curve{
		{key: "actor/kl_loss", label: "in the loss"},
		{key: "actor/reward_kl_penalty", label: "in the reward"},
	}},
	{title: "Clipped tokens", unit: "tokens (%)", factor: 100, list: []curve{
		{key: "actor/pg_clipfrac", label: "ratio clip"},
		{key: "actor/pg_clipfrac_lower", label: "dual clip"},
	}},
	{title: "Gradient norm before clipping", unit: "L2 norm", log: true, list: []curve{
		{key: "actor/grad_norm", label: "actor"},
		{key: "critic/grad_norm", label: "critic"},
		{key: "train/grad_norm", label: "supervised"},
	}},
	{title: "Policy loss", unit: "loss", list: []curve{{key: "actor/pg_loss"}}},
	{title: "Value loss", unit: "loss", log: true, list: []curve{{key: "critic/vf_loss"}}},
	{title: "Variance explained by the critic", unit: "1 − Var(R − V) / Var(R)", list: []curve{{key: "critic/vf_explained_var"}}},
	{title: "Cross-entropy", unit: "nats per token", list: []curve{
		{key: "train/loss", label: "training"},
		{key: "val/loss", label: "held out", validation: true},
	}},
	{title: "Learning rate", unit: "learning rate", list: []curve{{key: "train/lr"}}},
	{title: "Response length", unit: "tokens per episode", list: []curve{{key: "response_length"}}},
}

// training is the figure of training curves; it has no panels when nothing of them was logged.
func training(r *rundir.Run) figure {
	xLabel, what := "training step", "every step"
	if len(r.Keys("train/loss")) > 0 {
		xLabel, what = "optimizer step", "every line of metrics"
	}
	var notes []string
	if n := window(len(r.Records)); n > 1 {
		notes = append(notes, fmt.Sprintf("thin: %s; thick: moving average over about %d of them", what, n))
	}
	if note := validationIntervals(r); note != "" {
		notes = append(notes, note)
	}
	f := figure{title: r.Name, caption: strings.Join(notes, "; "), columns: 3, width: 2.7 * vg.Inch, height: 1.75 * vg.Inch}
	for _, c := range trainingPanels {
		if p, ok := c.panel(r, xLabel); ok {
			f.panels = append(f.panels, p)
		}
	}
	if p, ok := timePanel(r, xLabel); ok {
		f.panels = append(f.panels, p)
	}
	return f
}

// intervals describes the error bars of validation results, if there are any.
func validationIntervals(r *rundir.Run) string {
	episodes := r.ValidationEpisodes()
	for tag, n := range episodes {
		switch {
		case len(r.Series("val-env/"+tag+"/success")) == 0:
		case len(episodes) == 1:
			return fmt.Sprintf("error bars: 95 %% interval of validation success over %d episodes", n)
		default:
			return "error bars: 95 % interval of validation success"
		}
	}
	return ""
}

// curve is one metric of a panel, or one per tag where the key has a *.
type curve struct {
	key, label string
	validation bool // seldom measured: markers
	share      bool // a validation mean of zeros and ones: gets error bars
}

// curves is a panel of metrics over the steps.
type curves struct {
	title, unit string
	factor      float64 // of the values; 0 stands for 1
	low, high   float64 // range that is always shown; both 0 = none
	log         bool    // logarithmic where all values are positive and far apart
	list        []curve
}

// drawn is a curve of a run.
type drawn struct {
	curve
	tag    string
	color  color.NRGBA
	points plotter.XYs
	ends   plotter.XYs // of the error bars, two per point
}

// panel draws what the run has of the curves; ok is false when it has nothing.
func (c curves) panel(r *rundir.Run, xLabel string) (out panel, ok bool) {
	var found []drawn
	var all plotter.XYs
	tags, episodes := c.tags(r), r.ValidationEpisodes()
	for i, m := range c.list {
		for _, key := range r.Keys(m.key) {
			d := drawn{curve: m, tag: tag(m.key, key), color: cycle[i%len(cycle)], points: series(r, key)}
			if len(d.points) == 0 {
				continue
			}
			if len(tags) > 1 {
				d.color = cycle[slices.Index(tags, d.tag)%len(cycle)]
			}
			if n := episodes[d.tag]; m.share && n > 0 {
				for _, q := range d.points {
					low, high := statistics.Wilson(q.Y, n, 0.95)
					d.ends = append(d.ends, plotter.XY{X: q.X, Y: low}, plotter.XY{X: q.X, Y: high})
				}
			}
			found = append(found, d)
			all = append(append(all, d.points...), d.ends...)
		}
	}
	if len(found) == 0 {
		return panel{}, false
	}
	p := newPlot(xLabel, c.unit)
	p.X.Tick.Marker = ticks{integer: true}
	out = panel{title: c.title, plot: p}
	convert := c.converter(all)
	for _, d := range found {
		e := entry{d.label, d.color, markLine}
		if d.validation {
			e.mark = markDot
			addMarkers(p, convert(d.points), convert(d.ends), d.color)
		} else {
			addSmoothed(p, d.points, d.color, convert)
		}
		if len(tags) > 1 { // a colour for each tag, a mark for each kind
			if !d.validation {
				e.label = d.tag
			} else {
				e.color = grey
			}
		}
		if e.label != "" && !slices.Contains(out.legend, e) {
			out.legend = append(out.legend, e)
		}
	}
	if c.isLog(all) {
		p.Y.Tick.Marker = logTicks{}
	}
	all = convert(all)
	if c.low != c.high {
		all = append(all, plotter.XY{X: all[0].X, Y: c.low}, plotter.XY{X: all[0].X, Y: c.high})
	}
	fitX(p, r)
	fitY(p, all)
	return out, true
}

// series is a metric as points.
func series(r *rundir.Run, key string) plotter.XYs {
	var out plotter.XYs
	for _, p := range r.Series(key) {
		out = append(out, plotter.XY{X: float64(p.Step), Y: p.Value})
	}
	return out
}

// tags are what the curves' patterns stand for in the run; none when they have no pattern.
func (c curves) tags(r *rundir.Run) []string {
	var out []string
	for _, m := range c.list {
		for _, key := range r.Keys(m.key) {
			if t := tag(m.key, key); t != "" && !slices.Contains(out, t) {
				out = append(out, t)
			}
		}
	}
	slices.Sort(out)
	return out
}

// isLog tells whether a logarithmic axis was asked for and helps.
func (c curves) isLog(points plotter.XYs) bool {
	_, _, low, high := plotter.XYRange(points)
	return c.log && low > 0 && high/low > 20
}

// converter turns values into what the axis shows: multiples of the unit, or logarithms.
func (c curves) converter(all plotter.XYs) func(plotter.XYs) plotter.XYs {
	factor, log := c.factor, c.isLog(all)
	if factor == 0 {
		factor = 1
	}
	return func(points plotter.XYs) plotter.XYs {
		out := make(plotter.XYs, len(points))
		for i, q := range points {
			out[i] = plotter.XY{X: q.X, Y: q.Y * factor}
			if log {
				out[i].Y = math.Log10(q.Y)
			}
		}
		return out
	}
}

// tag is what the * of a pattern stands for in a key.
func tag(pattern, key string) string {
	before, after, wild := strings.Cut(pattern, "*")
	if !wild {
		return ""
	}
	return strings.TrimSuffix(strings.TrimPrefix(key, before), after)
}

// addSmoothed draws every value in a light colour and their moving average in the full one.
func addSmoothed(p *plot.Plot, points plotter.XYs, c color.NRGBA, convert func(plotter.XYs) plotter.XYs) {
	n := window(len(points))
	switch {
	case len(points) == 1:
		p.Add(dots(convert(points), c, 2.2))
	case n == 1:
		p.Add(line(convert(points), c, 1.3))
	default:
		p.Add(line(convert(points), light(c), 0.6), line(convert(movingAverage(points, n)), c, 1.4))
	}
}

// window is the number of values that a smoothed one averages: about a twentieth of the curve, odd, and 1 for short curves.
func window(n int) int {
	if n < 20 {
		return 1
	}
	return max(3, n/20|1)
}

// movingAverage is centred, over n values; at the ends over those that there are.
func movingAverage(points plotter.XYs, n int) plotter.XYs {
	out := make(plotter.XYs, len(points))
	for i := range points {
		near := points[max(0, i-n/2):min(len(points), i+n/2+1)]
		sum := 0.0
		for _, q := range near {
			sum += q.Y
		}
		out[i] = plotter.XY{X: points[i].X, Y: sum / float64(len(near))}
	}
	return out
}

// addMarkers draws validation results, with their intervals where there are any.
func addMarkers(p *plot.Plot, points, ends plotter.XYs, c color.NRGBA) {
	if len(points) > 1 {
		p.Add(line(points, light(c), 0.8))
	}
	if len(ends) > 0 {
		low, high := make([]float64, len(points)), make([]float64, len(points))
		for i := range points {
			low[i], high[i] = ends[2*i].Y, ends[2*i+1].Y
		}
		p.Add(errorBars(points, low, high, c))
	}
	p.Add(dots(points, c, 2.2))
}

// fitX shows all logged steps in every panel.
func fitX(p *plot.Plot, r *rundir.Run) {
	p.X.Min, p.X.Max = float64(r.Records[0].Step), float64(r.Records[len(r.Records)-1].Step)
	if p.X.Min > 0 && p.X.Min < p.X.Max/10 {
		p.X.Min = 0
	}
	pad := math.Max((p.X.Max-p.X.Min)*0.02, 0.5)
	p.X.Min, p.X.Max = p.X.Min-pad, p.X.Max+pad
}

// fitY shows all points with some space around them.
func fitY(p *plot.Plot, points plotter.XYs) {
	_, _, low, high := plotter.XYRange(points)
	room := (high - low) * 0.06
	if high-low <= 1e-9*math.Max(math.Abs(high), math.Abs(low)) {
		room = math.Max(math.Abs(high)*0.1, 1e-6)
	}
	p.Y.Min, p.Y.Max = low-room, high+room
}
