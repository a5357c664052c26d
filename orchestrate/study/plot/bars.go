package plot

import (
	"fmt"
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// norms has the gradient norm of each component per bucket and, where the profile allows it, below them norms that can be compared between
// buckets of different size.
func (s step) norms() (figure, error) {
	var panels []panel
	what := " gradient"
	if s.profile == "exact" {
		what += ", whole bucket"
	}
	for _, c := range components {
		panels = append(panels, s.bars(c.title+what, c.name, "L2 norm", c.color))
	}
	f := s.figure(3, 2.7, 2.2, panels...)
	if s.profile == "exact" {
		for _, c := range components {
			f.panels = append(f.panels, strengthPanel(s.buckets, c.title+" gradient per group", []component{c}, s.intervals()))
		}
		f.caption += "; whole bucket: grows with its size"
	}
	f.caption += caveat(s.profile)
	return f, nil
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
	f := s.figure(3, 2.7, 1.9, panels...)
	f.caption += "; where a gradient is noise, these shrink as 1/√n with the bucket's n episodes or tokens: a small bucket then looks strong"
	return f, nil
}

// spread has the mean reward spread of each bucket's groups, with the smallest and the largest as bars.
func (s step) spread() (figure, error) {
	f := s.figure(1, 4, 2.6, s.bars("Reward spread", "reward_std_mean", "in-group std of returns", vermilion))
	f.caption += "; error bars: smallest and largest group"
	return f, nil
}

// bars is a panel of one metric per bucket, with values written above bars and their error bars, and "all" in grey. A bucket without the
// metric has no bar, and a panel without any says so.
func (s step) bars(title, name, unit string, c color.NRGBA) panel {
	if !computed(s.buckets, name) {
		return panel{title: title, plot: message("not computed")}
	}
	largest := 0.0
	for _, b := range s.buckets {
		if v, ok := b.get(name); ok {
			largest = math.Max(largest, math.Abs(v))
		}
	}
	factor, power := scale(largest)
	p := newPlot(tickRows(s.buckets), unit+power)
	names := constants{}
	above, below := &plotter.Labels{Offset: vg.Point{Y: 2}}, &plotter.Labels{Offset: vg.Point{Y: -2}}
	write := func(at plotter.XY, text string) {
		labels := above
		if at.Y < 0 {
			labels = below
		}
		labels.XYs, labels.Labels = append(labels.XYs, at), append(labels.Labels, text)
		labels.TextStyle = append(labels.TextStyle, valueStyle(at.Y))
	}
	var points plotter.XYs
	var ends, whiskers []float64
	low, high := 0.0, 0.0
	for i, b := range s.buckets {
		names = append(names, b.tick())
		v, ok := b.get(name)
		at := plotter.XY{X: float64(i), Y: v * factor}
		if !ok {
			write(plotter.XY{X: at.X}, "n/a")
			continue
		}
		fill := c
		if b.name == "all" {
			fill = grey
		}
		p.Add(&plotter.BarChart{Values: plotter.Values{at.Y}, XMin: at.X, Width: barWidth, Color: fill})
		end := at
		if _, l, h, ok := interval(b); ok && name == "reward_std_mean" {
			points, ends, whiskers = append(points, at), append(ends, l*factor), append(whiskers, h*factor)
			end.Y = math.Max(end.Y, h*factor)
		}
		write(end, decimal(at.Y, largest*factor))
		low, high = math.Min(low, at.Y), math.Max(high, end.Y)
	}
	p.X.Tick.Marker, p.X.Tick.Length = names, 0
	p.X.Min, p.X.Max = -0.6, float64(len(s.buckets))-0.4
	if len(points) > 0 {
		p.Add(errorBars(points, ends, whiskers, ink))
	}
	room := (high - low) * 0.12
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
	p.Add(above, below)
	return panel{title: title, plot: p}
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
