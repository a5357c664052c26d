package plot

import (
	"image/color"

	imagefont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// The palette of Okabe and Ito, "Color Universal Design" (2008).
var (
	blue      = color.NRGBA{0, 114, 178, 255}
	vermilion = color.NRGBA{213, 94, 0, 255}
	green     = color.NRGBA{0, 158, 115, 255}
	purple    = color.NRGBA{204, 121, 167, 255}
	orange    = color.NRGBA{230, 159, 0, 255}
	sky       = color.NRGBA{86, 180, 233, 255}
	yellow    = color.NRGBA{240, 228, 66, 255}
	grey      = color.NRGBA{150, 150, 150, 255}
	ink       = color.NRGBA{38, 38, 38, 255}
	gridGrey  = color.NRGBA{226, 226, 226, 255}
)

// cycle is the order in which the series of a panel take colours.
var cycle = []color.NRGBA{blue, vermilion, green, purple, orange, sky}

// light is the colour thinned with white: the raw values behind a smoothed line.
func light(c color.NRGBA) color.NRGBA {
	mix := func(v uint8) uint8 { return uint8(255 - (255-int(v))*3/10) }
	return color.NRGBA{mix(c.R), mix(c.G), mix(c.B), 255}
}

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
	return text.Style{Color: ink, Font: font.From(face, vg.Points(size)), Handler: plot.DefaultTextHandler}
}

// newPlot is an empty plot with a light grid behind whatever is added. Its ranges are set by the one who fills it.
func newPlot(xLabel, yLabel string) *plot.Plot {
	p := plot.New()
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Padding = 0
		axis.LineStyle = draw.LineStyle{Color: ink, Width: vg.Points(0.6)}
		axis.Tick.LineStyle = axis.LineStyle
		axis.Tick.Length = vg.Points(3)
		axis.Label.Padding = vg.Points(2)
		tick, label := style(sizeTick, false), style(sizeLabel, false)
		tick.XAlign, tick.YAlign = axis.Tick.Label.XAlign, axis.Tick.Label.YAlign
		label.XAlign, label.YAlign = axis.Label.TextStyle.XAlign, axis.Label.TextStyle.YAlign
		axis.Tick.Label, axis.Label.TextStyle = tick, label
		axis.Tick.Marker = ticks{}
	}
	p.X.Label.Text, p.Y.Label.Text = xLabel, yLabel
	grid := plotter.NewGrid()
	line := draw.LineStyle{Color: gridGrey, Width: vg.Points(0.5)}
	grid.Horizontal, grid.Vertical = line, line
	p.Add(grid)
	return p
}

// message is a panel that only says something, such as "not computed".
func message(text string) *plot.Plot {
	p := plot.New()
	p.HideAxes()
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, 0, 1
	s := style(sizeLabel, false)
	s.Color, s.XAlign, s.YAlign = grey, draw.XCenter, draw.YCenter
	p.Add(&plotter.Labels{XYs: plotter.XYs{{X: 0.5, Y: 0.5}}, Labels: []string{text}, TextStyle: []draw.TextStyle{s}})
	return p
}

func line(points plotter.XYs, c color.Color, width float64) *plotter.Line {
	return &plotter.Line{XYs: points, LineStyle: draw.LineStyle{Color: c, Width: vg.Points(width)}}
}

func dots(points plotter.XYs, c color.Color, radius float64) *plotter.Scatter {
	return &plotter.Scatter{XYs: points, GlyphStyle: draw.GlyphStyle{Color: c, Radius: vg.Points(radius), Shape: draw.CircleGlyph{}}}
}

// errorBars draws from low to high at each point.
func errorBars(points plotter.XYs, low, high []float64, c color.Color) *plotter.YErrorBars {
	errors := make(plotter.YErrors, len(points))
	for i, p := range points {
		errors[i].Low, errors[i].High = p.Y-low[i], high[i]-p.Y
	}
	return &plotter.YErrorBars{XYs: points, YErrors: errors, CapWidth: vg.Points(3.5),
		LineStyle: draw.LineStyle{Color: c, Width: vg.Points(0.8)}}
}
