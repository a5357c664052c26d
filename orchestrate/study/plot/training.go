package plot

import (
	"cmp"
	"fmt"
	"image/color"
	"slices"
	"strings"

	"gyre/internal/figure"
	"gyre/internal/statistics"
	"gyre/internal/table"
	"gyre/orchestrate/run/rundir"
)

// success is the panel that matters most: it stands first and is wide.
var success = curves{title: "Success", unit: "episodes (%)", factor: 100, low: 0, high: 100, list: []curve{
	{key: "train/*/success", label: "training"},
	{key: "val-env/*/success", label: "validation", validation: true, share: true},
}}

// trainingPanels are the panels of training.png below it, in their order; those without data are left out.
var trainingPanels = []curves{
	{title: "Return", unit: "mean return per episode", list: []curve{
		{key: "train/charts/avg_episode_return", label: "training"},
		{key: "val-env/charts/avg_episode_return", label: "validation", validation: true},
		{key: "critic/score/mean", label: "score of kept episodes"},
	}},
	{title: "Reward std", unit: stdLabel, list: []curve{
		{key: "rollout/in_group_reward_std", label: "all groups"},
		{key: "rollout/chosen_in_group_reward_std", label: "kept groups"},
	}},
	{title: "Groups kept by the filter", unit: "groups (%)", factor: 100, low: 0, high: 100,
		list: []curve{{key: "rollout/filter_kept_ratio"}}},
	{title: "Policy entropy", unit: "nats per token", list: []curve{{key: "actor/entropy"}}},
	{title: "Learning rate", unit: "learning rate", low: 0, high: 1e-12, list: []curve{
		{key: "actor/lr", label: "actor"}, {key: "critic/lr", label: "critic"}, {key: "train/lr", label: "supervised"},
	}},
	{title: "Gradient norm before clipping", unit: "L2 norm", log: true, list: []curve{
		{key: "actor/grad_norm", label: "actor"},
		{key: "critic/grad_norm", label: "critic"},
		{key: "train/grad_norm", label: "supervised"},
	}},
	{title: "Policy change per update", unit: "KL(old || new) (nats)", list: []curve{{key: "actor/ppo_kl"}}},
	{title: "Distance to the reference", unit: "KL (nats per token)", list: []curve{
		{key: "actor/kl_loss", label: "in the loss"},
		{key: "actor/reward_kl_penalty", label: "in the reward"},
	}},
	{title: "Clipped tokens", unit: "tokens (%)", factor: 100, list: []curve{
		{key: "actor/pg_clipfrac", label: "ratio clip"},
		{key: "actor/pg_clipfrac_lower", label: "dual clip"},
	}},
	{title: "Policy loss", unit: "loss", list: []curve{{key: "actor/pg_loss"}}},
	{title: "Value loss", unit: "loss", log: true, list: []curve{{key: "critic/vf_loss"}}},
	{title: "Variance explained by the critic", unit: "1 − Var(R − V) / Var(R)",
		list: []curve{{key: "critic/vf_explained_var"}}},
	{title: "Cross-entropy", unit: "nats per token", list: []curve{
		{key: "train/loss", label: "training"},
		{key: "val/loss", label: "held out", validation: true},
	}},
	{title: "Turns with a valid action", unit: "turns (%)", factor: 100, low: 0, high: 100, list: []curve{
		{key: "train/*/action_is_valid", label: "training"},
		{key: "val-env/*/action_is_valid", label: "validation", validation: true},
	}},
	{title: "Response length", unit: "tokens per episode", list: []curve{{key: "response_length"}}},
}

// Training is the figure of a run's training curves; it has no panels when nothing of them was logged.
func Training(r *rundir.Run) figure.Figure {
	first, last := float64(r.Records[0].Step), float64(r.Records[len(r.Records)-1].Step)
	if first > 0 && first < last/10 {
		first = 0
	}
	x, what := figure.Axis{Label: "training step", Integer: true, Low: first, High: last}, "every step"
	if len(r.Keys("train/loss")) > 0 {
		x.Label, what = "optimizer step", "every line of metrics"
	}
	f := figure.Figure{Name: "training.png", Title: r.Name, Columns: 3, Height: 1.75}
	if n := window(len(r.Records)); n > 1 {
		f.Note(fmt.Sprintf("thin: %s; thick: moving average over about %d of them", what, n))
	}
	f.Note(validationIntervals(r))
	lead := success.panel(r, x)
	lead.Wide = true
	panels := []figure.Panel{lead}
	for _, c := range trainingPanels {
		panels = append(panels, c.panel(r, x))
	}
	f.Panels = slices.DeleteFunc(append(panels, timePanel(r, x), usefulPanel(r, x)), figure.Panel.Empty)
	return f
}

// validationIntervals describes the error bars of validation results, if there are any.
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

// panel draws what the run has of the curves: a colour for each, or for each tag where there are several.
func (c curves) panel(r *rundir.Run, x figure.Axis) figure.Panel {
	p := figure.Panel{Title: c.title, X: x, Y: figure.Axis{Label: c.unit, Low: c.low, High: c.high, Log: c.log}}
	tags, factor := c.tags(r), cmp.Or(c.factor, 1)
	for i, m := range c.list {
		for _, key := range r.Keys(m.key) {
			points, which := r.Series(key), rundir.Tag(m.key, key)
			if len(points) == 0 {
				continue
			}
			paint, label := figure.Color(i), m.label
			switch {
			case len(tags) > 1 && m.validation:
				paint, label = figure.Color(slices.Index(tags, which)), ""
			case len(tags) > 1:
				paint, label = figure.Color(slices.Index(tags, which)), which
			case len(c.list) == 1:
				label = ""
			}
			if !m.validation {
				p.Add(smoothed(points, factor, paint, label)...)
				continue
			}
			path := line(points, factor)
			path.Color, path.Width = figure.Light(paint), 0.8
			dots := figure.Mark{Kind: figure.Dots, Color: paint, Label: label, X: path.X, Y: path.Y}
			if n := r.ValidationEpisodes()[which]; m.share && n > 0 {
				for _, q := range points {
					share := statistics.Wilson(q.Value, n, 0.95)
					dots.Low, dots.High = append(dots.Low, factor*share.Low), append(dots.High, factor*share.High)
				}
			}
			p.Add(path, dots)
		}
	}
	return p
}

// tags are what the curves' patterns stand for in the run; none when they have no pattern.
func (c curves) tags(r *rundir.Run) (tags []string) {
	for _, m := range c.list {
		for _, key := range r.Keys(m.key) {
			if t := rundir.Tag(m.key, key); t != "" {
				tags = append(tags, t)
			}
		}
	}
	slices.Sort(tags)
	return slices.Compact(tags)
}

// line goes through points.
func line(points []rundir.Point, factor float64) (m figure.Mark) {
	for _, q := range points {
		m.Add(float64(q.Step), factor*q.Value)
	}
	return m
}

// smoothed is every value in a light colour and their moving average in the full one.
func smoothed(points []rundir.Point, factor float64, c color.NRGBA, label string) []figure.Mark {
	n := window(len(points))
	mean := line(movingAverage(points, n), factor)
	mean.Color, mean.Label = c, label
	if n == 1 {
		return []figure.Mark{mean}
	}
	raw := line(points, factor)
	raw.Color, raw.Width = figure.Light(c), 0.6
	return []figure.Mark{raw, mean}
}

// window is the number of values that a smoothed one averages: about a twentieth of the curve, odd, and 1 for short
// curves.
func window(n int) int {
	if n < 20 {
		return 1
	}
	return max(3, n/20|1)
}

// movingAverage is centred, over n values; at the ends over those that there are.
func movingAverage(points []rundir.Point, n int) []rundir.Point {
	out := make([]rundir.Point, len(points))
	for i := range points {
		near := points[max(0, i-n/2):min(len(points), i+n/2+1)]
		sum := 0.0
		for _, q := range near {
			sum += q.Value
		}
		out[i] = rundir.Point{Step: points[i].Step, Value: sum / float64(len(near))}
	}
	return out
}

// Terminal is a run's validation success over the steps as text of some width: a curve per tag, and its first and last
// value with their intervals; then a bar of useful work. The error is that nothing was validated.
func Terminal(r *rundir.Run, width int) (string, error) {
	var out strings.Builder
	const pattern = "val-env/*/success"
	for _, key := range r.Keys(pattern) {
		points, n := r.Series(key), r.ValidationEpisodes()[rundir.Tag(pattern, key)]
		m := line(points, 100)
		m.Label = rundir.Tag(pattern, key) + ": validation"
		p := figure.Panel{X: figure.Axis{Label: "steps"}, Y: figure.Axis{Label: "success in %", Low: 0, High: 100},
			Marks: []figure.Mark{m}}
		out.WriteString(p.Terminal(width))
		for _, q := range slices.Compact([]rundir.Point{points[0], points[len(points)-1]}) {
			text := fmt.Sprintf("  after step %-4d %s", q.Step, table.Share(q.Value, n).Text)
			if n > 0 {
				text += fmt.Sprintf(" of %d episodes", n)
			}
			fmt.Fprintln(&out, text)
		}
	}
	out.WriteString(usefulBar(r, width))
	if len(r.Keys(pattern)) == 0 {
		return out.String(), fmt.Errorf("%s: nothing was validated: expected metrics named %s", r.Name,
			"val-env/TAG/success")
	}
	return out.String(), nil
}
