package plot

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// The components of the policy gradient in the order of figures.
var components = []struct {
	name, title string
	color       color.NRGBA
}{
	{"kl", "KL", green},
	{"entropy", "Entropy", orange},
	{"task", "Task", blue},
}

// norms has the gradient norm of each component per bucket.
func (s step) norms() (figure, error) {
	var panels []panel
	for _, c := range components {
		panels = append(panels, s.bars(c.title+" gradient norm", c.name, "L2 norm", c.color))
	}
	return s.figure(3, 2.7, 2.2, panels...), nil
}

// losses has the loss terms per bucket.
func (s step) losses() (figure, error) {
	return s.figure(2, 3.2, 1.9,
		s.bars("Policy loss", "loss/policy", "loss", blue), s.bars("Entropy term", "loss/entropy", "loss", orange),
		s.bars("KL term", "loss/kl", "loss", green), s.bars("Total loss", "loss/total", "loss", purple)), nil
}

// normalized has, above each other, the norms divided by the bucket's episodes and by its sampled tokens: the two differ by
// orders of magnitude and cannot share an axis.
func (s step) normalized() (figure, error) {
	var panels []panel
	for _, c := range components {
		panels = append(panels, s.bars(c.title+" per episode", "per_sample/"+c.name, "norm / episode", c.color))
	}
	for _, c := range components {
		panels = append(panels, s.bars(c.title+" per token", "per_token/"+c.name, "norm / token", c.color))
	}
	return s.figure(3, 2.7, 1.9, panels...), nil
}

// spread has the mean reward spread of each bucket's groups, with the smallest and the largest as bars.
func (s step) spread() (figure, error) {
	p := s.bars("Reward spread", "reward_std_mean", "in-group std of returns", vermilion)
	var points plotter.XYs
	var low, high []float64
	top := p.plot.Y.Max
	for i, b := range s.buckets {
		mean, ok1 := b.get("reward_std_mean")
		l, ok2 := b.get("reward_std_min")
		h, ok3 := b.get("reward_std_max")
		if ok1 && ok2 && ok3 {
			points = append(points, plotter.XY{X: float64(i), Y: mean})
			low, high = append(low, l), append(high, h)
			top = math.Max(top, h*1.08)
		}
	}
	p.plot.Y.Max = top
	p.plot.Add(errorBars(points, low, high, ink))
	f := s.figure(1, 4, 2.6, p)
	f.caption += "; error bars: smallest and largest group"
	return f, nil
}

// bars is a panel of one metric per bucket, with values written at the bars and "all" in grey. A bucket without the metric has no
// bar, and a panel without any says so.
func (s step) bars(title, name, unit string, c color.NRGBA) panel {
	if !computed(s.buckets, name) {
		return panel{title: title, plot: message("not computed")}
	}
	largest, widest := s.largest(name), s.largest("reward_std_mean")
	factor, power := scale(largest)
	p := newPlot("", unit+power)
	names := constants{}
	low, high := 0.0, 0.0
	labels := &plotter.Labels{}
	points, ends, whiskers := signals(s.buckets, name, factor, func(i int, _ bucket) (float64, bool) { return float64(i), true })
	for i, b := range s.buckets {
		names = append(names, b.label)
		if mean, ok := b.get("reward_std_mean"); ok && name != "reward_std_mean" {
			names[i] += "\n" + decimal(mean, widest)
		}
		v, ok := b.get(name)
		at := plotter.XY{X: float64(i), Y: v * factor}
		if !ok {
			labels.XYs, labels.Labels = append(labels.XYs, plotter.XY{X: at.X}), append(labels.Labels, "n/a")
			labels.TextStyle = append(labels.TextStyle, valueStyle(1))
			continue
		}
		fill := c
		if b.name == "all" {
			fill = grey
		}
		p.Add(&plotter.BarChart{Values: plotter.Values{at.Y}, XMin: at.X, Width: barWidth, Color: fill})
		above := at
		if k := slices.IndexFunc(points, func(q plotter.XY) bool { return q.X == at.X }); k >= 0 {
			above.Y = math.Max(above.Y, whiskers[k])
		}
		labels.XYs, labels.Labels = append(labels.XYs, above), append(labels.Labels, decimal(at.Y, largest*factor))
		labels.TextStyle = append(labels.TextStyle, valueStyle(at.Y))
		low, high = math.Min(low, at.Y), math.Max(high, at.Y)
	}
	p.X.Tick.Marker, p.X.Tick.Length = names, 0
	p.X.Min, p.X.Max = -0.6, float64(len(s.buckets))-0.4
	p.X.Label.Text = "bucket, mean reward spread"
	if name == "reward_std_mean" {
		p.X.Label.Text = "bucket"
		// The error bars stand where values would be written.
		labels.Labels = make([]string, len(labels.XYs))
	}
	out := panel{title: title, plot: p}
	if len(points) > 0 {
		p.Add(errorBars(points, ends, whiskers, ink), dots(points, ink, 1.8))
		out.legend = []entry{s.signalEntry()}
		high = math.Max(high, top(whiskers))
	}
	room := (high - low) * 0.1
	if room == 0 {
		room = 1
	}
	if low < 0 {
		low -= room
		p.Add(line(plotter.XYs{{X: p.X.Min, Y: 0}, {X: p.X.Max, Y: 0}}, ink, 0.6))
	}
	if high > 0 || low == 0 {
		high += room
	}
	p.Y.Min, p.Y.Max = low, high
	p.Add(labels)
	return out
}

// largest is the largest magnitude of a metric over the buckets.
func (s step) largest(name string) (out float64) {
	for _, b := range s.buckets {
		if v, ok := b.get(name); ok {
			out = math.Max(out, math.Abs(v))
		}
	}
	return out
}

// barWidth leaves space between bars at the least distance that step.figure gives them, 26 points.
const barWidth = vg.Length(15)

// valueStyle is for a number written above a positive bar or below a negative one.
func valueStyle(v float64) text.Style {
	t := style(sizeValue, false)
	t.XAlign, t.YAlign = draw.XCenter, draw.YBottom
	if v < 0 {
		t.YAlign = draw.YTop
	}
	return t
}

// decimal writes v with as many decimals as give the largest value of its panel three digits.
func decimal(v, largest float64) string {
	decimals := 2
	if largest > 0 {
		decimals = max(0, 2-int(math.Floor(math.Log10(largest)+1e-9)))
	}
	return typographic(strconv.FormatFloat(v, 'f', decimals, 64))
}

// scale chooses a power of ten that makes values of a magnitude readable, and names it for the axis.
func scale(largest float64) (factor float64, power string) {
	if largest == 0 || largest >= 0.1 && largest < 1000 {
		return 1, ""
	}
	exponent := int(math.Floor(math.Log10(largest)))
	return math.Pow(10, float64(-exponent)), typographic(fmt.Sprintf(" (× 1e%d)", exponent))
}
