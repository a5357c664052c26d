package plot

import (
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// summary has the buckets' reward spreads, and the gradient norms of the task and of the regularisers against them.
func (s step) summary() (figure, error) {
	list := proper(s.buckets)
	box, err := spreadBoxes(list)
	if err != nil {
		return figure{}, err
	}
	task := s.withSignal(versusSpread(list, "Task gradient", []string{"task"}, 0, false), list)
	regularisers := versusSpread(list, "KL + entropy gradient", []string{"kl", "entropy"}, 1, false)
	return s.figure(3, 2.7, 2.3, box, task, regularisers), nil
}

// spreadBoxes is a box plot of the groups' spreads per bucket. Buckets without their groups have the mean, with bars from the
// smallest to the largest.
func spreadBoxes(list []bucket) (panel, error) {
	p := newPlot("bucket", "in-group std of returns")
	names := constants{}
	out := panel{title: "Reward spread", plot: p}
	var all, means plotter.XYs
	var low, high []float64
	for i, b := range list {
		names = append(names, b.label)
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

// versusSpread is a panel of a gradient norm against the buckets' mean spread; with several components of their sum, and of each
// in its colour. usual is the upper end of the norm axis as long as it suits the values; 0 means none.
func versusSpread(list []bucket, title string, names []string, usual float64, log bool) panel {
	points, missing := sums(list, names, log)
	if len(missing) == len(names) || len(points) == 0 {
		return panel{title: title, plot: message("not computed")}
	}
	p := newPlot("mean reward spread of the bucket", "gradient L2 norm")
	out := panel{title: title, plot: p}
	paint := blue
	if len(names) > 1 {
		paint = purple
		sum := "sum"
		var absent []entry
		for _, c := range components {
			if own, without := sums(list, []string{c.name}, log); slices.Contains(names, c.name) {
				switch {
				case len(without) > 0:
					absent = append(absent, entry{c.title + " not computed", ink, markNone})
				case len(missing) == 0:
					p.Add(line(own.XYs(), c.color, 0.9), dots(own.XYs(), c.color, 1.6))
					out.legend = append(out.legend, entry{c.title, c.color, markLine})
				default:
					sum = c.title
				}
			}
		}
		out.legend = append(append(out.legend, entry{sum, paint, markDot}), absent...)
	}
	p.Add(line(points.XYs(), light(paint), 1), dots(points.XYs(), paint, 2.8), pointLabels{points})
	fitSpread(p, points, usual, log)
	return out
}

// labelled are points with the labels of their buckets.
type labelled []struct {
	plotter.XY
	label string
}

// XYs are the points alone.
func (l labelled) XYs() plotter.XYs {
	out := make(plotter.XYs, len(l))
	for i, q := range l {
		out[i] = q.XY
	}
	return out
}

// sums adds up the norms that were computed, per bucket that has a spread (drawn as its logarithm if log is set); missing are the
// components that were not.
func sums(list []bucket, names []string, log bool) (points labelled, missing []string) {
	var have []string
	for _, name := range names {
		if computed(list, name) {
			have = append(have, name)
		} else {
			missing = append(missing, name)
		}
	}
buckets:
	for _, b := range list {
		spread, ok := b.get("reward_std_mean")
		if !ok || len(have) == 0 {
			continue
		}
		if log {
			spread = math.Log10(spread)
		}
		total := 0.0
		for _, name := range have {
			v, ok := b.get(name)
			if !ok {
				continue buckets
			}
			total += v
		}
		points = append(points, struct {
			plotter.XY
			label string
		}{plotter.XY{X: spread, Y: total}, b.label})
	}
	return points, missing
}

// fitSpread sets the axes of a panel of norm against spread.
func fitSpread(p *plot.Plot, points labelled, usual float64, log bool) {
	left, right, _, top := plotter.XYRange(points.XYs())
	room := math.Max((right-left)*0.1, 0.02*math.Max(math.Abs(right), 1e-3))
	if log {
		room = math.Max((right-left)*0.1, 0.1)
		p.X.Tick.Marker = logTicks{}
	}
	p.X.Min, p.X.Max = left-room, right+room
	p.Y.Min, p.Y.Max = 0, math.Max(top*1.15, 1e-12)
	if top <= usual && top >= usual/10 {
		p.Y.Max = usual
	}
}
