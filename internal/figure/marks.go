package figure

import (
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"gyre/internal/statistics"
)

// barWidth is that of bars and boxes, in points: it leaves space between them at the least distance of places.
const barWidth = 15

// frame is a panel on its way to a picture: its axes' scales, and what is drawn below and above its curves.
type frame struct {
	plot                *plot.Plot
	x, y                scale
	below, lines, above []plot.Plotter // so that no curve lies under a band and no mark under a curve
}

func (f *frame) at(m Mark, i int) plotter.XY { return plotter.XY{X: f.x.of(m.X[i]), Y: f.y.of(m.Y[i])} }

// add draws a mark.
func (f *frame) add(m Mark) error {
	points := f.points(m)
	switch m.Kind {
	case Line:
		f.addLine(m)
	case Dots:
		f.errorBars(m, m.Color)
		f.above = append(f.above, glyphs(points, m, 2.2, draw.CircleGlyph{}))
	case Rings:
		f.above = append(f.above, glyphs(points, m, 2.6, draw.RingGlyph{}))
	case Crosses:
		f.above = append(f.above, glyphs(points, m, 3, boldCross{}))
	case Bars:
		return f.addBars(m)
	case Area:
		f.below = append(f.below, &plotter.Line{XYs: points, FillColor: m.Color})
	case Boxes:
		return f.addBoxes(m)
	case Words:
		f.addWords(m)
	case Tiles:
		f.addTiles(m)
	}
	return nil
}

// points are those of a mark that can be drawn.
func (f *frame) points(m Mark) (out plotter.XYs) {
	for i := range m.Y {
		if at := f.at(m, i); statistics.Finite(at.X) && statistics.Finite(at.Y) {
			out = append(out, at)
		}
	}
	return out
}

func glyphs(points plotter.XYs, m Mark, radius float64, shape draw.GlyphDrawer) plot.Plotter {
	if m.Width > 0 {
		radius = m.Width
	}
	return &plotter.Scatter{XYs: points, GlyphStyle: draw.GlyphStyle{Color: m.Color, Radius: vg.Points(radius),
		Shape: shape}}
}

func stroke(c color.Color, width float64) draw.LineStyle {
	return draw.LineStyle{Color: c, Width: vg.Points(width)}
}

func (f *frame) addLine(m Mark) {
	width := m.Width
	if width == 0 {
		width = 1.3
	}
	for _, run := range finite(m.X, m.Y) {
		var points plotter.XYs
		for _, i := range run {
			points = append(points, f.at(m, i))
		}
		if len(points) == 1 {
			f.lines = append(f.lines, glyphs(points, Mark{Color: m.Color}, 1.8, draw.CircleGlyph{}))
			continue
		}
		f.lines = append(f.lines, &plotter.Line{XYs: points, LineStyle: stroke(m.Color, width)})
	}
	if m.Low == nil {
		return
	}
	fill := m.Color
	fill.A = 32
	for _, run := range finite(m.X, m.Low, m.High) {
		var outline plotter.XYs
		for _, i := range run {
			outline = append(outline, plotter.XY{X: f.x.of(m.X[i]), Y: f.y.of(m.Low[i])})
		}
		for k := len(run) - 1; k >= 0; k-- {
			outline = append(outline, plotter.XY{X: f.x.of(m.X[run[k]]), Y: f.y.of(m.High[run[k]])})
		}
		f.below = append(f.below, &plotter.Polygon{XYs: []plotter.XYs{outline}, Color: fill})
	}
}

// errorBars draws from Low to High at each point that has both.
func (f *frame) errorBars(m Mark, c color.Color) {
	if m.Low == nil {
		return
	}
	var points plotter.XYs
	var x plotter.XErrors
	var y plotter.YErrors
	for _, run := range finite(m.X, m.Y, m.Low, m.High) {
		for _, i := range run {
			at := f.at(m, i)
			points = append(points, at)
			x = append(x, struct{ Low, High float64 }{at.X - f.x.of(m.Low[i]), f.x.of(m.High[i]) - at.X})
			y = append(y, struct{ Low, High float64 }{at.Y - f.y.of(m.Low[i]), f.y.of(m.High[i]) - at.Y})
		}
	}
	if m.Horizontal {
		f.above = append(f.above, &plotter.XErrorBars{XYs: points, XErrors: x, CapWidth: vg.Points(4),
			LineStyle: stroke(c, 0.8)})
		return
	}
	f.above = append(f.above, &plotter.YErrorBars{XYs: points, YErrors: y, CapWidth: vg.Points(3.5),
		LineStyle: stroke(c, 0.8)})
}

func (f *frame) addBars(m Mark) error {
	for i := range m.X {
		at, place := f.at(m, i), m.X[i]
		value := at.Y
		if m.Horizontal {
			value, place = at.X, m.Y[i]
		}
		if statistics.Finite(value) {
			f.below = append(f.below, &plotter.BarChart{Values: plotter.Values{value}, XMin: place, Width: barWidth,
				Color: m.Color, Horizontal: m.Horizontal})
		}
	}
	f.errorBars(m, Ink)
	if m.Text == nil {
		return nil
	}
	labels := &plotter.Labels{}
	for i, text := range m.Text {
		at, s := f.at(m, i), style(sizeValue, false)
		s.XAlign, s.YAlign = draw.XCenter, draw.YBottom
		if !statistics.Finite(at.Y) {
			at.Y = 0
		}
		if m.High != nil && statistics.Finite(m.High[i]) {
			at.Y = math.Max(at.Y, f.y.of(m.High[i]))
		}
		if at.Y < 0 {
			s.YAlign = -1.2
		}
		labels.XYs, labels.Labels, labels.TextStyle = append(labels.XYs, at), append(labels.Labels, text),
			append(labels.TextStyle, s)
	}
	labels.Offset.Y = 2
	f.above = append(f.above, labels)
	return nil
}

func (f *frame) addBoxes(m Mark) error {
	for i, x := range m.X {
		values := make(plotter.Values, len(m.Groups[i]))
		for k, v := range m.Groups[i] {
			values[k] = f.y.of(v)
		}
		box, err := plotter.NewBoxPlot(barWidth, x, values)
		if err != nil {
			return err
		}
		box.FillColor = Light(m.Color)
		box.BoxStyle.Width, box.BoxStyle.Color = vg.Points(0.7), Ink
		box.MedianStyle, box.WhiskerStyle = stroke(m.Color, 1.8), stroke(Ink, 0.7)
		box.GlyphStyle = draw.GlyphStyle{Color: Ink, Radius: vg.Points(1.2), Shape: draw.RingGlyph{}}
		f.lines = append(f.lines, box)
	}
	return nil
}

func (f *frame) addWords(m Mark) {
	labels := &plotter.Labels{Offset: vg.Point{X: 7}}
	for i, text := range m.Text {
		s := style(sizeValue, false)
		s.YAlign, s.Color = draw.YCenter, m.Color
		if m.Upwards {
			s.Rotation, labels.Offset = math.Pi/2, vg.Point{X: 9, Y: 3}
		}
		labels.XYs, labels.Labels, labels.TextStyle = append(labels.XYs, f.at(m, i)), append(labels.Labels, text),
			append(labels.TextStyle, s)
	}
	f.above = append(f.above, labels)
}

// addTiles fills squares from almost white to blue: more is darker, in print too.
func (f *frame) addTiles(m Mark) {
	l := nothing()
	l.include(m.Z...)
	labels := &plotter.Labels{}
	for i := range m.X {
		at, share := f.at(m, i), 0.0
		fill := gridGrey
		if statistics.Finite(m.Z[i]) {
			if share = 0.5; l.high > l.low {
				share = (m.Z[i] - l.low) / (l.high - l.low)
			}
			mix := func(from, to float64) uint8 { return uint8(from + share*(to-from)) }
			fill = color.NRGBA{mix(238, 0), mix(244, 90), mix(250, 150), 255}
		}
		corners := plotter.XYs{{X: at.X - 0.5, Y: at.Y - 0.5}, {X: at.X + 0.5, Y: at.Y - 0.5},
			{X: at.X + 0.5, Y: at.Y + 0.5}, {X: at.X - 0.5, Y: at.Y + 0.5}}
		f.below = append(f.below, &plotter.Polygon{XYs: []plotter.XYs{corners}, Color: fill})
		s := style(sizeLabel, true)
		s.XAlign, s.YAlign = draw.XCenter, draw.YCenter
		if share > 0.5 {
			s.Color = color.White
		}
		labels.XYs, labels.Labels, labels.TextStyle = append(labels.XYs, at), append(labels.Labels, m.Text[i]),
			append(labels.TextStyle, s)
	}
	f.above = append(f.above, labels)
}

// boldCross is a cross that stands out from curves and bands behind it, and from other crosses.
type boldCross struct{}

// DrawGlyph implements draw.GlyphDrawer.
func (boldCross) DrawGlyph(c *draw.Canvas, s draw.GlyphStyle, at vg.Point) {
	for _, l := range []draw.LineStyle{stroke(color.White, 3), stroke(s.Color, 1.5)} {
		c.StrokeLine2(l, at.X-s.Radius, at.Y-s.Radius, at.X+s.Radius, at.Y+s.Radius)
		c.StrokeLine2(l, at.X-s.Radius, at.Y+s.Radius, at.X+s.Radius, at.Y-s.Radius)
	}
}
