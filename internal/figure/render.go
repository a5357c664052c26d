package figure

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"

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
func (p Panel) render() *plot.Plot {
	if p.Empty() {
		return message("nothing is defined")
	}
	x, y := p.extent()
	made := plot.New()
	f := frame{x: newScale(p.X, p.X.widen(x)), y: newScale(p.Y, p.Y.widen(y))}
	grid := plotter.NewGrid()
	grid.Horizontal, grid.Vertical = stroke(gridGrey, 0.5), stroke(gridGrey, 0.5)
	made.Add(grid)
	for _, m := range p.Marks {
		f.add(m)
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
	return made
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
		pad = cmp.Or(math.Abs(high)*0.1, 1) // of zeros nothing tells the scale
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

// Terminal is the panel's curves as text, no wider than the terminal.
func (p Panel) Terminal(width int) string {
	var out strings.Builder
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
		fmt.Fprintln(&out, asciigraph.Plot(along(m, min(60, width-terminalMargin)), options...))
	}
	return out.String()
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

// scale is how the values of an axis are drawn: as they are, as multiples of a power of ten, or as their decimal
// logarithms. (gonum's own logarithmic scale leaves room for the labels of an axis in the wrong place.)
type scale struct {
	log    bool
	factor float64
	power  string // the unit's factor, for the axis label
}

// newScale chooses the scale of an axis over a range.
func newScale(a Axis, l limits) scale {
	if a.Log && l.low > 0 && l.high/l.low > 20 {
		return scale{log: true, factor: 1}
	}
	if a.Integer || a.Names != nil {
		return scale{factor: 1}
	}
	factor, power := Unit(math.Max(math.Abs(l.low), math.Abs(l.high)))
	return scale{factor: factor, power: power}
}

// Unit is a power of ten that makes values of a magnitude readable, and its name.
func Unit(largest float64) (factor float64, power string) {
	if largest == 0 || largest >= 0.02 && largest < 1e5 {
		return 1, ""
	}
	exponent := int(math.Floor(math.Log10(largest) + 1e-9))
	return math.Pow(10, float64(-exponent)), Typographic(fmt.Sprintf(" (× 1e%d)", exponent))
}

func (s scale) of(v float64) float64 {
	if s.log {
		return math.Log10(v)
	}
	return v * s.factor
}

// ticks places about five labels at 1, 2 or 5 times a power of ten.
type ticks struct{ integer bool }

// Ticks implements plot.Ticker.
func (t ticks) Ticks(low, high float64) []plot.Tick {
	step := niceStep((high - low) / 4.5)
	if t.integer {
		step = max(step, 1)
	}
	decimals := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	var out []plot.Tick
	for i := math.Ceil(low/step - 1e-9); i*step <= high+1e-9*step; i++ {
		out = append(out, plot.Tick{Value: i * step, Label: Typographic(strconv.FormatFloat(i*step, 'f', decimals,
			64))})
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

// logTicks is for an axis of decimal logarithms: it labels the decades, and 2 and 5 times them on a short range.
type logTicks struct{}

// Ticks implements plot.Ticker.
func (logTicks) Ticks(low, high float64) []plot.Tick {
	every := math.Max(1, math.Ceil((high-low)/5))
	var out []plot.Tick
	first := math.Floor(low)
	for k := first; k <= math.Ceil(high); k++ {
		for m := 1.0; m < 10; m++ {
			tick := plot.Tick{Value: k + math.Log10(m)}
			if tick.Value < low-1e-9 || tick.Value > high+1e-9 {
				continue
			}
			if m == 1 && math.Mod(k-first, every) == 0 || high-low < 1.7 && (m == 1 || m == 2 || m == 5) {
				tick.Label = Short(m*math.Pow(10, k), 1)
			}
			out = append(out, tick)
		}
	}
	return out
}

// Short writes v with a number of significant digits, without trailing zeros.
func Short(v float64, digits int) string {
	text := strconv.FormatFloat(v, 'g', digits, 64)
	if mantissa, exponent, ok := strings.Cut(text, "e"); ok {
		n, _ := strconv.Atoi(exponent) // FormatFloat writes a valid exponent
		if n >= 0 && n < 5 {
			return Typographic(strconv.FormatFloat(v, 'f', 0, 64))
		}
		return Typographic(mantissa + "e" + strconv.Itoa(n))
	}
	return Typographic(text)
}

// Typographic replaces the hyphen of a number by a minus sign.
func Typographic(number string) string {
	if strings.Trim(number, "-0.") == "" {
		number = strings.TrimPrefix(number, "-")
	}
	return strings.ReplaceAll(number, "-", "−")
}
