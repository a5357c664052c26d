package plot

import (
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// Line is a curve of a Chart. Undefined values (NaN) are gaps.
type Line struct {
	Label string
	X, Y  []float64
	// Low and High bound a band beside the curve; nil = none.
	Low, High []float64
}

// Chart is one panel of lines.
type Chart struct {
	Title, X, Y string
	Lines       []Line
	Names       []string // of the positions 0, 1, … on the x axis; nil = numbers
	// Within are bounds that the axis always shows, and grows beyond where values do: no value is ever cut off.
	Within [2]float64
	// Reference draws a horizontal line where it is a number.
	Reference float64
}

// Lines is a figure of charts in columns.
func Lines(name, title, caption string, columns int, charts ...Chart) Picture {
	f := figure{title: title, caption: caption, columns: columns, width: 3.4 * vg.Inch, height: 2.3 * vg.Inch}
	for _, c := range charts {
		f.panels = append(f.panels, c.panel())
	}
	if len(charts) == 1 {
		f.width, f.height = 5.2*vg.Inch, 3*vg.Inch
		if n := len(charts[0].Names); n > 12 {
			f.width = vg.Length(min(float64(n)*0.3+1.2, 16)) * vg.Inch
		}
	}
	return Picture{name, f}
}

func (c Chart) panel() panel {
	p := newPlot(c.X, c.Y)
	out := panel{title: c.Title, plot: p}
	low, high := c.Within[0], c.Within[1]
	if low == high {
		low, high = math.Inf(1), math.Inf(-1)
	}
	left, right := math.Inf(1), math.Inf(-1)
	grow := func(x, y float64) {
		if !math.IsNaN(y) {
			low, high, left, right = min(low, y), max(high, y), min(left, x), max(right, x)
		}
	}
	var curves []plot.Plotter // above all bands
	for i, l := range c.Lines {
		paint := cycle[i%len(cycle)]
		if l.Low != nil {
			for _, run := range defined(l.X, l.Low, l.High) {
				lower, upper := make(plotter.XYs, len(run)), make(plotter.XYs, len(run))
				for k, at := range run {
					lower[k], upper[k] = plotter.XY{X: l.X[at], Y: l.Low[at]}, plotter.XY{X: l.X[at], Y: l.High[at]}
					grow(l.X[at], l.Low[at])
					grow(l.X[at], l.High[at])
				}
				p.Add(band(lower, upper, paint))
			}
		}
		for _, run := range defined(l.X, l.Y) {
			points := make(plotter.XYs, len(run))
			for k, at := range run {
				points[k] = plotter.XY{X: l.X[at], Y: l.Y[at]}
				grow(l.X[at], l.Y[at])
			}
			curves = append(curves, line(points, paint, 1.3))
			if len(points) <= 60 {
				curves = append(curves, dots(points, paint, 1.8))
			}
		}
		out.legend = append(out.legend, entry{l.Label, paint, markLine})
	}
	p.Add(curves...)
	if left > right {
		return panel{title: c.Title, plot: message("nothing is defined")}
	}
	if !math.IsNaN(c.Reference) {
		low, high = min(low, c.Reference), max(high, c.Reference)
	}
	if left == right {
		left, right = left-0.5, right+0.5
	}
	pad := (high - low) * 0.04
	if pad == 0 {
		pad = 0.5
	}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = left-(right-left)*0.02, right+(right-left)*0.02, low-pad, high+pad
	if !math.IsNaN(c.Reference) {
		p.Add(line(plotter.XYs{{X: p.X.Min, Y: c.Reference}, {X: p.X.Max, Y: c.Reference}}, grey, 0.8))
	}
	if c.Names != nil {
		p.X.Tick.Marker = constants(c.Names)
		p.X.Tick.Label.Rotation, p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = math.Pi/4, -1, -1
	} else {
		p.X.Tick.Marker = ticks{integer: true}
	}
	return out
}

// defined gives the stretches of positions at which all columns are numbers.
func defined(x []float64, columns ...[]float64) [][]int {
	var runs [][]int
	open := false
	for i := range x {
		whole := true
		for _, c := range columns {
			whole = whole && !math.IsNaN(c[i])
		}
		if whole && !open {
			runs = append(runs, nil)
		}
		if open = whole; whole {
			runs[len(runs)-1] = append(runs[len(runs)-1], i)
		}
	}
	return runs
}
