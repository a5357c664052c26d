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
	"gonum.org/v1/plot/vg/draw"
)

// component is a part of the policy gradient.
type component struct {
	name, title string
	color       color.NRGBA
}

// The components in the order of figures.
var components = []component{{"kl", "KL", green}, {"entropy", "Entropy", orange}, {"task", "Task", blue}}

// regularisers are shown together, as RAGEN does.
var regularisers = components[:2]

// sumTitle heads the panels of both.
const sumTitle = "KL + entropy gradient"

// dodge keeps the marks of several components apart within a bucket's place.
const dodge = 0.16

// strengthPanel shows, bucket beside bucket, how strong a group's gradient is: the measured norm as a ring, and the estimate without noise with
// its interval as a dot. Where an estimate or an interval is missing, the panel says why. With two components there is a third ring: the norm
// of their sum.
func strengthPanel(list []bucket, title string, shown []component, intervals string) panel {
	shown = slices.DeleteFunc(slices.Clone(shown), func(c component) bool { return !computed(list, c.name) })
	if len(shown) == 0 {
		return panel{title: title, plot: message("not computed")}
	}
	unit := "gradient L2 norm"
	if list[0].exact {
		unit = "gradient norm per group"
	}
	p := newPlot(tickRows(list), unit)
	out := panel{title: title, plot: p}
	names := constants{}
	for _, b := range list {
		names = append(names, b.tick())
	}
	highest := 0.0
	reasons := &plotter.Labels{}
	for i, c := range shown {
		shift := dodge * (float64(i) - float64(len(shown)-1)/2)
		if len(shown) > 1 {
			shift *= 2
		}
		var measured, points plotter.XYs
		var barred plotter.XYs
		var low, high []float64
		for x, b := range list {
			s, ok := b.strength(c.name)
			if !ok {
				continue
			}
			at := plotter.XY{X: float64(x) + shift}
			measured = append(measured, plotter.XY{X: at.X, Y: s.measured})
			highest = math.Max(highest, s.measured)
			if s.hasSignal {
				points = append(points, plotter.XY{X: at.X, Y: s.signal})
				highest = math.Max(highest, s.signal)
			}
			if s.hasIntervals {
				barred = append(barred, plotter.XY{X: at.X, Y: s.signal})
				low, high = append(low, s.low), append(high, s.high)
				highest = math.Max(highest, s.high)
			} else if b.exact && i == 0 {
				reasons.XYs = append(reasons.XYs, plotter.XY{X: float64(x)})
				reasons.Labels = append(reasons.Labels, s.why)
			}
		}
		p.Add(rings(measured, c.color))
		label := c.title
		if len(shown) == 1 {
			label = "measured, with noise"
		}
		out.legend = append(out.legend, entry{label, c.color, markRing})
		if len(points) > 0 {
			paint := c.color
			if len(shown) == 1 {
				paint = ink
			}
			p.Add(errorBars(barred, low, high, paint), dots(points, paint, 2))
			if i == len(shown)-1 {
				out.legend = append(out.legend, entry{intervals, ink, markDot})
			}
		}
	}
	if len(shown) == 2 {
		var sums plotter.XYs
		exact := true
		for x, b := range list {
			norm, isExact, ok := b.together(shown[0].name, shown[1].name)
			if !ok {
				continue
			}
			if b.exact && b.groups() > 0 {
				norm /= b.groups()
			}
			sums = append(sums, plotter.XY{X: float64(x), Y: norm})
			highest, exact = math.Max(highest, norm), exact && isExact
		}
		p.Add(rings(sums, purple))
		label := "norm of the sum"
		if !exact {
			label = "sum of the norms"
		}
		out.legend = append(out.legend, entry{label, purple, markRing})
	} else if len(shown) == 1 && strings.Contains(title, sumTitle) {
		absent := regularisers[0]
		if shown[0] == absent {
			absent = regularisers[1]
		}
		out.legend[0].label = shown[0].title
		out.legend = append(out.legend, entry{absent.title + " not computed", ink, markNone})
	}
	p.X.Tick.Marker, p.X.Tick.Length = names, 0
	p.X.Min, p.X.Max = -0.6, float64(len(list))-0.4
	p.Y.Min, p.Y.Max = 0, math.Max(highest*1.1, 1e-12)
	if len(reasons.Labels) > 0 {
		for range reasons.Labels {
			s := style(sizeValue, false)
			s.Color, s.Rotation, s.XAlign, s.YAlign = grey, math.Pi/2, draw.XLeft, draw.YCenter
			reasons.TextStyle = append(reasons.TextStyle, s)
		}
		reasons.Offset = vg.Point{X: vg.Points(9), Y: vg.Points(3)}
		p.Add(reasons)
	}
	return out
}

func rings(points plotter.XYs, c color.Color) *plotter.Scatter {
	return &plotter.Scatter{XYs: points, GlyphStyle: draw.GlyphStyle{Color: c, Radius: vg.Points(2.6), Shape: draw.RingGlyph{}}}
}

// intervalText explains the dots.
func intervalText(confidence float64, known bool) string {
	if !known {
		return "without noise, with its interval"
	}
	return fmt.Sprintf("without noise, %g%% interval", 100*confidence)
}

// caveat says how to read a figure's norms.
func caveat(profile string) string {
	if profile == "exact" {
		return "; per group: a measured norm holds noise, which shrinks as 1/√groups: compare the estimates without noise"
	}
	return "; norms as this procedure gives them: without intervals, and dependent on a bucket's size"
}

// spreadIntervals has every bucket's mean spread with bars from the smallest to the largest.
func spreadIntervals(list []bucket, title string, log bool) panel {
	p := newPlot(tickRows(list), "in-group std of returns")
	convert := func(v float64) float64 { return v }
	if log {
		convert, p.Y.Tick.Marker = math.Log10, logTicks{}
	}
	names := constants{}
	var points, ends plotter.XYs
	var low, high []float64
	for i, b := range list {
		names = append(names, b.tick())
		if mean, l, h, ok := interval(b); ok {
			l, h = convert(l), convert(h)
			points = append(points, plotter.XY{X: float64(i), Y: convert(mean)})
			low, high = append(low, l), append(high, h)
			ends = append(ends, plotter.XY{X: 0, Y: l}, plotter.XY{X: 0, Y: h})
		}
	}
	if len(points) == 0 {
		return panel{title: title, plot: message("not logged")}
	}
	p.Add(errorBars(points, low, high, ink), dots(points, vermilion, 2.6))
	p.X.Tick.Marker, p.X.Tick.Length = names, 0
	p.X.Min, p.X.Max = -0.6, float64(len(list))-0.4
	fitY(p, ends)
	return panel{title: title, plot: p}
}

// spreadBoxes is a box plot of the groups' spreads per bucket. Buckets without their groups have the mean, with bars from the
// smallest to the largest.
func spreadBoxes(list []bucket) (panel, error) {
	p := newPlot(tickRows(list), "in-group std of returns")
	names := constants{}
	out := panel{title: "Reward spread", plot: p}
	var all, means plotter.XYs
	var low, high []float64
	for i, b := range list {
		names = append(names, b.tick())
		x := float64(i)
		if len(b.spreads) > 0 {
			box, err := plotter.NewBoxPlot(barWidth, x, plotter.Values(b.spreads))
			if err != nil {
				return panel{}, err
			}
			box.FillColor = light(vermilion)
			box.BoxStyle.Width, box.BoxStyle.Color = vg.Points(0.7), ink
			box.MedianStyle = draw.LineStyle{Color: vermilion, Width: vg.Points(1.8)}
			box.WhiskerStyle = draw.LineStyle{Color: ink, Width: vg.Points(0.7)}
			box.GlyphStyle = draw.GlyphStyle{Color: ink, Radius: vg.Points(1.2), Shape: draw.RingGlyph{}}
			p.Add(box)
			all = append(all, plotter.XY{X: x, Y: box.Min}, plotter.XY{X: x, Y: box.Max})
			continue
		}
		mean, l, h, ok := interval(b)
		if !ok {
			continue
		}
		means, low, high = append(means, plotter.XY{X: x, Y: mean}), append(low, l), append(high, h)
		all = append(all, plotter.XY{X: x, Y: l}, plotter.XY{X: x, Y: h})
	}
	if len(all) == 0 {
		return panel{title: out.title, plot: message("not logged")}, nil
	}
	if len(means) > 0 {
		p.Add(errorBars(means, low, high, ink), dots(means, vermilion, 2.6))
		out.legend = []entry{{"mean, smallest and largest group", vermilion, markDot}}
	}
	p.X.Tick.Marker, p.X.Tick.Length = names, 0
	p.X.Min, p.X.Max = -0.6, float64(len(list))-0.4
	_, _, _, top := plotter.XYRange(all)
	p.Y.Min, p.Y.Max = -0.03*top, math.Max(top*1.06, 1e-6) // a box at zero stays clear of the axis
	return out, nil
}

// interval returns the mean, smallest and largest spread of a bucket's groups.
func interval(b bucket) (mean, low, high float64, ok bool) {
	mean, ok1 := b.get("reward_std_mean")
	low, ok2 := b.get("reward_std_min")
	high, ok3 := b.get("reward_std_max")
	return mean, low, high, ok1 && ok2 && ok3
}

// shareRange gives the plots of a column the same axes.
func shareRange(plots []*plot.Plot) {
	for _, of := range []func(*plot.Plot) *plot.Axis{
		func(p *plot.Plot) *plot.Axis { return &p.X }, func(p *plot.Plot) *plot.Axis { return &p.Y },
	} {
		low, high := math.Inf(1), math.Inf(-1)
		for _, p := range plots {
			if a := of(p); a.Width > 0 { // the axes of a message are hidden
				low, high = math.Min(low, a.Min), math.Max(high, a.Max)
			}
		}
		for _, p := range plots {
			if a := of(p); a.Width > 0 {
				a.Min, a.Max = low, high
			}
		}
	}
}
