package figure

import (
	"image/color"
	"math"

	imagefont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

var gridGrey = color.NRGBA{226, 226, 226, 255}

// Font sizes in points.
const (
	sizeTick, sizeLabel, sizeLegend, sizeValue = 7.5, 8.5, 7.5, 7
	sizePanel, sizeFigure, sizeCaption         = 9.5, 12, 8
)

// style is sans-serif text of a size.
func style(size float64, bold bool) text.Style {
	face := font.Font{Typeface: "Liberation", Variant: "Sans"}
	if bold {
		face.Weight = imagefont.WeightBold
	}
	return text.Style{Color: Ink, Font: font.From(face, vg.Points(size)), Handler: plot.DefaultTextHandler}
}

// render makes the plot of a panel: a light grid, then areas, curves and marks, with ranges around all of them.
func (p Panel) render() (*plot.Plot, error) {
	if p.Empty() {
		return message("nothing is defined"), nil
	}
	x, y := p.extent()
	f := frame{plot: plot.New(), x: newScale(p.X, p.X.widen(x)), y: newScale(p.Y, p.Y.widen(y))}
	grid := plotter.NewGrid()
	grid.Horizontal, grid.Vertical = stroke(gridGrey, 0.5), stroke(gridGrey, 0.5)
	f.plot.Add(grid)
	for _, m := range p.Marks {
		if err := f.add(m); err != nil {
			return nil, err
		}
	}
	f.plot.Add(f.below...)
	f.plot.Add(f.lines...)
	f.plot.Add(f.above...)
	p.X.set(&f.plot.X, f.x, x)
	p.Y.set(&f.plot.Y, f.y, y)
	values := f.plot.Y
	if room := 0.07 * (values.Max - values.Min); p.writesValues() {
		f.plot.Y.Max += room
		if values.Min < 0 {
			f.plot.Y.Min -= room
		}
	}
	if p.X.Names == nil && p.spare() {
		f.plot.X.Max += 0.45 * (f.plot.X.Max - f.plot.X.Min) // room for the words
	}
	return f.plot, nil
}

func (p Panel) writesValues() bool {
	for _, m := range p.Marks {
		if m.Kind == Bars && m.Text != nil {
			return true
		}
	}
	return false
}

func (p Panel) spare() bool {
	for _, m := range p.Marks {
		if m.Kind == Words && len(m.Text) > 0 {
			return true
		}
	}
	return false
}

// widen includes what the axis always shows.
func (a Axis) widen(l limits) limits {
	if a.Low < a.High {
		l.include(a.Low, a.High)
	}
	return l
}

// set gives an axis of a plot its looks, range and ticks.
func (a Axis) set(axis *plot.Axis, s scale, values limits) {
	axis.Padding = 0
	axis.LineStyle = stroke(Ink, 0.6)
	axis.Tick.LineStyle, axis.Tick.Length = axis.LineStyle, vg.Points(3)
	axis.Label.Padding = vg.Points(2)
	tick, label := style(sizeTick, false), style(sizeLabel, false)
	tick.XAlign, tick.YAlign = axis.Tick.Label.XAlign, axis.Tick.Label.YAlign
	label.XAlign, label.YAlign = axis.Label.TextStyle.XAlign, axis.Label.TextStyle.YAlign
	axis.Tick.Label, axis.Label.TextStyle = tick, label
	axis.Label.Text = a.Label + s.power
	if a.Names != nil {
		axis.Tick.Marker, axis.Tick.LineStyle.Width = places(a.Names), 0
		axis.Min, axis.Max = -0.6, float64(len(a.Names))-0.4
		if a.Slanted {
			axis.Tick.Label.Rotation, axis.Tick.Label.XAlign, axis.Tick.Label.YAlign = math.Pi/4, -1, -1
		}
		return
	}
	l := a.widen(values)
	low, high := s.of(l.low), s.of(l.high)
	pad := (high - low) * 0.05
	if a.Integer {
		pad = math.Max((high-low)*0.02, 0.5)
	}
	if high-low <= 1e-9*math.Max(math.Abs(high), math.Abs(low)) {
		pad = math.Max(math.Abs(high)*0.1, 1e-6)
	}
	axis.Min, axis.Max = low-pad, high+pad
	if low == 0 && !a.Integer { // bars and areas stand on the axis
		axis.Min = -0.01 * (high - low)
	}
	axis.Tick.Marker = ticks{integer: a.Integer}
	if s.log {
		axis.Tick.Marker = logTicks{}
	}
}

// message is a panel that only says something.
func message(content string) *plot.Plot {
	p := plot.New()
	p.HideAxes()
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, 0, 1
	s := style(sizeLabel, false)
	s.Color, s.XAlign, s.YAlign = Grey, draw.XCenter, draw.YCenter
	p.Add(&plotter.Labels{XYs: plotter.XYs{{X: 0.5, Y: 0.5}}, Labels: []string{content},
		TextStyle: []draw.TextStyle{s}})
	return p
}
