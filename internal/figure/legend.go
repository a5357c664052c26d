package figure

import (
	"slices"

	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const swatch = vg.Length(13) // what stands before a legend's text

// legend is the marks with labels and values, each label with its colour and kind once, in rows that fit a width.
func (p Panel) legend(width vg.Length) (rows [][]Mark) {
	s := style(sizeLegend, false)
	var seen []Mark
	used := vg.Length(0)
	for _, m := range p.Marks {
		same := func(o Mark) bool { return o.Label == m.Label && o.Color == m.Color && o.Kind == m.Kind }
		if m.Label == "" || len(finite(m.X, m.Y)) == 0 || slices.ContainsFunc(seen, same) {
			continue
		}
		seen = append(seen, m)
		if len(rows) == 0 || used+m.labelWidth(s) > width+10 {
			rows, used = append(rows, nil), 0
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], m)
		used += m.labelWidth(s)
	}
	return rows
}

func (m Mark) labelWidth(s text.Style) vg.Length { return swatch + 3 + s.Width(m.Label) + 10 }

// headHeight is that of a panel's title and legend.
func (p Panel) headHeight(width vg.Length) vg.Length {
	return p.titleHeight() + 6 + rowHeight*vg.Length(len(p.legend(width)))
}

func (p Panel) titleHeight() vg.Length {
	if p.Title == "" {
		return 0
	}
	return vg.Points(sizePanel)
}

// drawHead writes title and legend above the data, where they cover nothing.
func (p Panel) drawHead(data draw.Canvas, height, width vg.Length) {
	y := data.Max.Y + height - p.titleHeight()
	data.FillText(style(sizePanel, true), vg.Point{X: data.Min.X, Y: y}, p.Title)
	s := style(sizeLegend, false)
	for _, row := range p.legend(width) {
		y -= rowHeight
		x := data.Min.X
		for _, m := range row {
			m.drawSample(data, vg.Point{X: x, Y: y + vg.Points(sizeLegend)*0.35})
			data.FillText(s, vg.Point{X: x + swatch + 3, Y: y}, m.Label)
			x += m.labelWidth(s)
		}
	}
}

// drawSample draws what stands before a label; at is the middle of its left edge.
func (m Mark) drawSample(c draw.Canvas, at vg.Point) {
	glyph := draw.GlyphStyle{Color: m.Color, Radius: vg.Points(2.4), Shape: draw.CircleGlyph{}}
	switch m.Kind {
	case Line:
		c.StrokeLine2(stroke(m.Color, 1.6), at.X, at.Y, at.X+swatch, at.Y)
		return
	case Bars, Area, Boxes, Tiles:
		const half = 3
		c.FillPolygon(m.Color, []vg.Point{{X: at.X + 2, Y: at.Y - half}, {X: at.X + 2, Y: at.Y + half},
			{X: at.X + swatch, Y: at.Y + half}, {X: at.X + swatch, Y: at.Y - half}})
		return
	case Rings:
		glyph.Shape = draw.RingGlyph{}
	case Crosses:
		glyph.Shape, glyph.Radius = boldCross{}, vg.Points(2.8)
	}
	c.DrawGlyphNoClip(glyph, vg.Point{X: at.X + swatch/2, Y: at.Y})
}
