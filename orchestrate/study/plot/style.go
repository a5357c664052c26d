package plot

import (
	"image/color"
	"math"
	"strconv"
	"strings"

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

// boldCross is a cross that stands out from curves and bands behind it, and from other crosses.
type boldCross struct{}

// DrawGlyph implements draw.GlyphDrawer.
func (boldCross) DrawGlyph(c *draw.Canvas, s draw.GlyphStyle, at vg.Point) {
	for _, l := range []draw.LineStyle{{Color: color.White, Width: vg.Points(3)}, {Color: s.Color, Width: vg.Points(1.5)}} {
		c.StrokeLine2(l, at.X-s.Radius, at.Y-s.Radius, at.X+s.Radius, at.Y+s.Radius)
		c.StrokeLine2(l, at.X-s.Radius, at.Y+s.Radius, at.X+s.Radius, at.Y-s.Radius)
	}
}

// crosses mark runs that did not come to their end.
func crosses(points plotter.XYs, c color.Color, radius float64) *plotter.Scatter {
	return &plotter.Scatter{XYs: points, GlyphStyle: draw.GlyphStyle{Color: c, Radius: vg.Points(radius), Shape: boldCross{}}}
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

// ticks places about five labels at 1, 2 or 5 times a power of ten.
type ticks struct{ integer bool }

// Ticks implements plot.Ticker.
func (t ticks) Ticks(low, high float64) []plot.Tick {
	step := niceStep((high - low) / 4.5)
	if t.integer {
		step = max(step, 1)
	}
	var out []plot.Tick
	for i := math.Ceil(low/step - 1e-9); i*step <= high+1e-9*step; i++ {
		out = append(out, plot.Tick{Value: i * step, Label: tickLabel(i*step, step, math.Max(math.Abs(low), math.Abs(high)))})
	}
	return out
}

// niceStep is the number of the form {1, 2, 5}·10^k nearest to raw on a logarithmic scale.
func niceStep(raw float64) float64 {
	decade := math.Pow(10, math.Floor(math.Log10(raw)))
	switch m := raw / decade; {
	case m < math.Sqrt(2):
		return decade
	case m < math.Sqrt(10):
		return 2 * decade
	case m < math.Sqrt(50):
		return 5 * decade
	}
	return 10 * decade
}

// tickLabel writes v with as many decimals as the step needs, or with an exponent when the numbers would be long.
func tickLabel(v, step, largest float64) string {
	if largest >= 1e6 || step < 1e-3 {
		return short(v, 3)
	}
	decimals := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	return typographic(strconv.FormatFloat(v, 'f', decimals, 64))
}

// short writes v with a number of significant digits, without trailing zeros.
func short(v float64, digits int) string {
	text := strconv.FormatFloat(v, 'g', digits, 64)
	if mantissa, exponent, ok := strings.Cut(text, "e"); ok {
		n, _ := strconv.Atoi(exponent) // FormatFloat writes a valid exponent
		if n >= 0 && n < 5 {
			return typographic(strconv.FormatFloat(v, 'f', 0, 64))
		}
		return typographic(mantissa + "e" + strconv.Itoa(n))
	}
	return typographic(text)
}

// typographic replaces the hyphen by a minus sign.
func typographic(number string) string {
	if strings.Trim(number, "-0.") == "" {
		number = strings.TrimPrefix(number, "-")
	}
	return strings.ReplaceAll(number, "-", "−")
}

// logTicks is for an axis of decimal logarithms: it labels the decades, and 2 and 5 times them on a short range. (Data are drawn as
// their logarithms: gonum's LogScale leaves room for axis labels in the wrong place.)
type logTicks struct{}

// Ticks implements plot.Ticker.
func (logTicks) Ticks(low, high float64) []plot.Tick {
	every := math.Max(1, math.Ceil((high-low)/5))
	var out []plot.Tick
	labels := 0
	first := math.Floor(low)
	for k := first; k <= math.Ceil(high); k++ {
		for m := 1.0; m < 10; m++ {
			tick := plot.Tick{Value: k + math.Log10(m)}
			if tick.Value < low-1e-9 || tick.Value > high+1e-9 {
				continue
			}
			if m == 1 && math.Mod(k-first, every) == 0 || high-low < 1.7 && (m == 1 || m == 2 || m == 5) {
				tick.Label = short(m*math.Pow(10, k), 1)
				labels++
			}
			out = append(out, tick)
		}
	}
	if labels >= 2 {
		return out
	}
	out = ticks{}.Ticks(math.Pow(10, low), math.Pow(10, high))
	for i := range out {
		out[i].Value = math.Log10(out[i].Value)
	}
	return out
}

// constants are fixed positions with their labels.
type constants []string

// Ticks implements plot.Ticker.
func (c constants) Ticks(_, _ float64) []plot.Tick {
	out := make([]plot.Tick, len(c))
	for i, label := range c {
		out[i] = plot.Tick{Value: float64(i), Label: label}
	}
	return out
}
