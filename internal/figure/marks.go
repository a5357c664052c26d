package figure

import (
	"cmp"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"gyre/internal/statistics"
)

// barWidth is that of bars and boxes, in points: it leaves space between them at the least distance of places.
const barWidth = 15

// frame is a panel on its way to a picture: its axes' scales, and what is drawn below and above its curves.
type frame struct {
	x, y                scale
	below, lines, above []plot.Plotter // so that no curve lies under a band and no mark under a curve
}

func (f *frame) at(m Mark, i int) plotter.XY { return plotter.XY{X: f.x.of(m.X[i]), Y: f.y.of(m.Y[i])} }

// add draws a mark.
func (f *frame) add(m Mark) {
	switch m.Kind {
	case Line:
		f.addLine(m)
	case Dots:
		f.errorBars(m, m.Color)
		f.addGlyphs(m, 2.2, draw.CircleGlyph{})
	case Rings:
		f.addGlyphs(m, 2.6, draw.RingGlyph{})
	case Crosses:
		f.addGlyphs(m, 3, boldCross{})
	case Bars:
		f.addBars(m)
	case Area:
		f.below = append(f.below, &plotter.Line{XYs: f.points(m), FillColor: m.Color})
	case Boxes:
		f.addBoxes(m)
	case Words:
		f.addWords(m)
	case Tiles:
		f.addTiles(m)
	}
}

// points are those of a mark that can be drawn.
func (f *frame) points(m Mark) (out plotter.XYs) {
	for _, run := range finite(m.X, m.Y) {
		for _, i := range run {
			out = append(out, f.at(m, i))
		}
	}
	return out
}

func (f *frame) addGlyphs(m Mark, radius float64, shape draw.GlyphDrawer) {
	f.above = append(f.above, &plotter.Scatter{XYs: f.points(m), GlyphStyle: draw.GlyphStyle{Color: m.Color,
		Radius: vg.Points(cmp.Or(m.Width, radius)), Shape: shape}})
}

func stroke(c color.Color, width float64) draw.LineStyle {
	return draw.LineStyle{Color: c, Width: vg.Points(width)}
}

func (f *frame) addLine(m Mark) {
	for _, run := range finite(m.X, m.Y) {
		var points plotter.XYs
		for _, i := range run {
			points = append(points, f.at(m, i))
		}
		if len(points) == 1 {
			f.lines = append(f.lines, &plotter.Scatter{XYs: points, GlyphStyle: draw.GlyphStyle{Color: m.Color,
				Radius: vg.Points(1.8), Shape: draw.CircleGlyph{}}})
			continue
		}
		f.lines = append(f.lines, &plotter.Line{XYs: points, LineStyle: stroke(m.Color, cmp.Or(m.Width, 1.3))})
	}
	if m.Low == nil {
		return
	}
	fill := m.Color
	fill.A = 32
	for _, run := range finite(m.X, m.Low, m.High) {
		n := len(run)
		outline := make(plotter.XYs, 2*n)
		for k, i := range run {
			outline[k] = plotter.XY{X: f.x.of(m.X[i]), Y: f.y.of(m.Low[i])}
			outline[2*n-1-k] = plotter.XY{X: f.x.of(m.X[i]), Y: f.y.of(m.High[i])}
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
	var ends []struct{ Low, High float64 }
	for _, run := range finite(m.X, m.Y, m.Low, m.High) {
		for _, i := range run {
			at := f.at(m, i)
			value, s := at.Y, f.y
			if m.Horizontal {
				value, s = at.X, f.x
			}
			points = append(points, at)
			ends = append(ends, struct{ Low, High float64 }{value - s.of(m.Low[i]), s.of(m.High[i]) - value})
		}
	}
	if m.Horizontal {
		f.above = append(f.above, &plotter.XErrorBars{XYs: points, XErrors: ends, CapWidth: vg.Points(4),
			LineStyle: stroke(c, 0.8)})
		return
	}
	f.above = append(f.above, &plotter.YErrorBars{XYs: points, YErrors: ends, CapWidth: vg.Points(3.5),
		LineStyle: stroke(c, 0.8)})
}

func (f *frame) addBars(m Mark) {
	for _, run := range finite(m.X, m.Y) {
		for _, i := range run {
			value, place := f.at(m, i).Y, m.X[i]
			if m.Horizontal {
				value, place = f.at(m, i).X, m.Y[i]
			}
			f.below = append(f.below, &plotter.BarChart{Values: plotter.Values{value}, XMin: place, Width: barWidth,
				Color: m.Color, Horizontal: m.Horizontal})
		}
	}
	f.errorBars(m, Ink)
	words := &writing{}
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
		words.add(at, text, s)
	}
	words.Offset.Y = 2
	f.above = append(f.above, words)
}

// writing is texts at points.
type writing struct{ plotter.Labels }

func (l *writing) add(at plotter.XY, text string, s text.Style) {
	l.XYs, l.Labels.Labels, l.TextStyle = append(l.XYs, at), append(l.Labels.Labels, text), append(l.TextStyle, s)
}

func (f *frame) addBoxes(m Mark) {
	for i, x := range m.X {
		values := make(plotter.Values, len(m.Groups[i]))
		for k, v := range m.Groups[i] {
			values[k] = f.y.of(v)
		}
		box, err := plotter.NewBoxPlot(barWidth, x, values)
		if err != nil { // of no values, or of some that are not finite: nothing is defined
			continue
		}
		box.FillColor = Light(m.Color)
		box.BoxStyle.Width, box.BoxStyle.Color = vg.Points(0.7), Ink
		box.MedianStyle, box.WhiskerStyle = stroke(m.Color, 1.8), stroke(Ink, 0.7)
		box.GlyphStyle = draw.GlyphStyle{Color: Ink, Radius: vg.Points(1.2), Shape: draw.RingGlyph{}}
		f.lines = append(f.lines, box)
	}
}

func (f *frame) addWords(m Mark) {
	words := &writing{}
	words.Offset.X = 7
	for i, text := range m.Text {
		s := style(sizeValue, false)
		s.YAlign, s.Color = draw.YCenter, m.Color
		if m.Upwards {
			s.Rotation, words.Offset = math.Pi/2, vg.Point{X: 9, Y: 3}
		}
		words.add(f.at(m, i), text, s)
	}
	f.above = append(f.above, words)
}

// addTiles fills squares from almost white to blue: more is darker, in print too.
func (f *frame) addTiles(m Mark) {
	l := nothing()
	l.include(m.Z...)
	words := &writing{}
	for i, z := range m.Z {
		at, share := f.at(m, i), 0.0
		fill := gridGrey
		if statistics.Finite(z) {
			if share = 0.5; l.high > l.low {
				share = (z - l.low) / (l.high - l.low)
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
		words.add(at, m.Text[i], s)
	}
	f.above = append(f.above, words)
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
