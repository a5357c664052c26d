package figure

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"

	"github.com/guptarohit/asciigraph"
	imagefont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"gyre/internal/statistics"
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
	made := plot.New()
	f := frame{x: newScale(p.X, p.X.widen(x)), y: newScale(p.Y, p.Y.widen(y))}
	grid := plotter.NewGrid()
	grid.Horizontal, grid.Vertical = stroke(gridGrey, 0.5), stroke(gridGrey, 0.5)
	made.Add(grid)
	for _, m := range p.Marks {
		if err := f.add(m); err != nil {
			return nil, err
		}
	}
	made.Add(slices.Concat(f.below, f.lines, f.above)...)
	p.X.set(&made.X, f.x, x)
	p.Y.set(&made.Y, f.y, y)
	if p.writes(Bars) { // room for the values
		room := 0.07 * (made.Y.Max - made.Y.Min)
		made.Y.Max += room
		if made.Y.Min < 0 {
			made.Y.Min -= room
		}
	}
	if p.X.Names == nil && p.writes(Words) {
		made.X.Max += 0.45 * (made.X.Max - made.X.Min)
	}
	return made, nil
}

// writes tells whether marks of a kind have text.
func (p Panel) writes(k Kind) bool {
	return slices.ContainsFunc(p.Marks, func(m Mark) bool { return m.Kind == k && len(m.Text) > 0 })
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
		var places plot.ConstantTicks
		for i, name := range a.Names {
			places = append(places, plot.Tick{Value: float64(i), Label: name})
		}
		axis.Tick.Marker, axis.Tick.LineStyle.Width = places, 0
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
	said := &writing{}
	said.add(plotter.XY{X: 0.5, Y: 0.5}, content, s)
	p.Add(said)
	return p
}

const (
	terminalHeight = 10
	terminalMargin = 20 // what axis and labels take
)

// Terminal writes the panel's curves as text, no wider than the terminal.
func (p Panel) Terminal(w io.Writer, width int) error {
	for _, m := range p.Marks {
		if m.Kind != Line && m.Kind != Dots || len(m.X) < 2 {
			continue
		}
		options := []asciigraph.Option{asciigraph.Height(terminalHeight), asciigraph.Precision(0),
			asciigraph.XAxisRange(m.X[0], m.X[len(m.X)-1]),
			asciigraph.XAxisTickCount(5),
			asciigraph.XAxisValueFormatter(func(x float64) string { return fmt.Sprintf("%.0f", x) }),
			asciigraph.Caption(fmt.Sprintf("%s %s over the %s", m.Label, p.Y.Label, p.X.Label))}
		if p.Y.Low < p.Y.High {
			options = append(options, asciigraph.LowerBound(p.Y.Low), asciigraph.UpperBound(p.Y.High))
		}
		if _, err := fmt.Fprintln(w, asciigraph.Plot(along(m, min(60, width-terminalMargin)), options...)); err != nil {
			return err
		}
	}
	return nil
}

// along interpolates a curve at n equal distances over x, so that its horizontal axis is true however the points lie.
func along(m Mark, n int) []float64 {
	out := make([]float64, n)
	first, last, next := m.X[0], m.X[len(m.X)-1], 1
	for i := range out {
		at := first + (last-first)*float64(i)/float64(n-1)
		for next < len(m.X)-1 && m.X[next] < at {
			next++
		}
		share := (at - m.X[next-1]) / (m.X[next] - m.X[next-1])
		if out[i] = m.Y[next-1] + share*(m.Y[next]-m.Y[next-1]); !statistics.Finite(out[i]) {
			out[i] = 0
		}
	}
	return out
}
