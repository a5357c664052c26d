package plot

import (
	"image/color"
	"io"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// PrintDPI is the resolution that journals ask for, in dots per inch.
const PrintDPI = 300

// panel is one plot of a figure; its title and legend stand above the data, where they cover nothing.
type panel struct {
	title  string
	plot   *plot.Plot
	legend []entry
}

// entry explains a colour.
type entry struct {
	label string
	color color.Color
	mark  mark
}

type mark int

const (
	markLine mark = iota
	markDot
	markRing
	markBox
	markCross
	markNone
)

// figure arranges panels of one size in rows.
type figure struct {
	title, caption string
	columns        int
	width, height  vg.Length // of one panel with its labels and title
	panels         []panel
}

const (
	rowHeight  = vg.Length(10.5) // a line of a legend
	margin     = vg.Length(10)
	swatch     = vg.Length(13) // what stands before a legend's text
	gap        = vg.Length(14) // between panels
	labelSpace = vg.Length(44) // about what a panel's y labels take
)

// Render writes the figure as a PNG.
func (f figure) Render(w io.Writer, dpi int) error {
	columns := min(f.columns, len(f.panels))
	rows := (len(f.panels) + columns - 1) / columns
	legendWidth := f.width - labelSpace
	heads := make([]vg.Length, rows) // height of titles and legends above each row
	for i, p := range f.panels {
		row := i / columns
		heads[row] = max(heads[row], p.titleHeight()+6+rowHeight*vg.Length(len(wrapLegend(p.legend, legendWidth))))
	}
	width := f.width*vg.Length(columns) + gap*vg.Length(columns-1) + 2*margin
	body := f.height*vg.Length(rows) + gap*vg.Length(rows-1)
	titles := textLines{}
	titles.add(f.title, style(sizeFigure, true), width-2*margin)
	caption := style(sizeCaption, false)
	caption.Color = color.Gray{90}
	titles.add(f.caption, caption, width-2*margin)
	height := body + 2*margin + titles.height() + 6
	for _, h := range heads {
		height += h
	}

	image := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dpi), vgimg.UseBackgroundColor(color.White))
	canvas := draw.New(image)
	grid := make([][]*plot.Plot, rows)
	for i := range grid {
		grid[i] = make([]*plot.Plot, columns)
	}
	for i, p := range f.panels {
		grid[i/columns][i%columns] = p.plot
	}
	// The rows are aligned without their heads and then moved apart.
	bodyCanvas := draw.Crop(canvas, margin, -margin, margin, margin+body-height)
	cells := plot.Align(grid, draw.Tiles{Rows: rows, Cols: columns, PadX: gap, PadY: gap}, bodyCanvas)
	for i, p := range f.panels {
		row := i / columns
		cell := cells[row][i%columns]
		up := vg.Length(0)
		for _, h := range heads[row+1:] {
			up += h
		}
		cell.Min.Y += up
		cell.Max.Y += up
		p.plot.Draw(cell)
		p.drawHead(p.plot.DataCanvas(cell), heads[row], legendWidth)
	}
	titles.draw(canvas, vg.Point{X: margin, Y: canvas.Max.Y - margin})
	_, err := vgimg.PngCanvas{Canvas: image}.WriteTo(w)
	return err
}

func (p panel) titleHeight() vg.Length {
	if p.title == "" {
		return 0
	}
	return vg.Points(sizePanel)
}

// drawHead writes title and legend into the space above the data.
func (p panel) drawHead(data draw.Canvas, height, width vg.Length) {
	y := data.Max.Y + height - p.titleHeight()
	data.FillText(style(sizePanel, true), vg.Point{X: data.Min.X, Y: y}, p.title)
	s := style(sizeLegend, false)
	for _, row := range wrapLegend(p.legend, width) {
		y -= rowHeight
		x := data.Min.X
		for _, e := range row {
			e.draw(data, vg.Point{X: x, Y: y + vg.Points(sizeLegend)*0.35})
			data.FillText(s, vg.Point{X: x + e.indent(), Y: y}, e.label)
			x += e.width(s)
		}
	}
}

func (e entry) width(s text.Style) vg.Length { return e.indent() + s.Width(e.label) + 10 }

// indent is the place of the sample before the text.
func (e entry) indent() vg.Length {
	if e.mark == markNone {
		return 0
	}
	return swatch + 3
}

// draw makes the sample of an entry; at is the middle of its left edge.
func (e entry) draw(c draw.Canvas, at vg.Point) {
	switch e.mark {
	case markLine:
		c.StrokeLine2(draw.LineStyle{Color: e.color, Width: vg.Points(1.6)}, at.X, at.Y, at.X+swatch, at.Y)
	case markDot:
		c.DrawGlyphNoClip(draw.GlyphStyle{Color: e.color, Radius: vg.Points(2.4), Shape: draw.CircleGlyph{}},
			vg.Point{X: at.X + swatch/2, Y: at.Y})
	case markRing:
		c.DrawGlyphNoClip(draw.GlyphStyle{Color: e.color, Radius: vg.Points(2.4), Shape: draw.RingGlyph{}},
			vg.Point{X: at.X + swatch/2, Y: at.Y})
	case markCross:
		c.DrawGlyphNoClip(draw.GlyphStyle{Color: e.color, Radius: vg.Points(2.8), Shape: boldCross{}},
			vg.Point{X: at.X + swatch/2, Y: at.Y})
	case markBox:
		const half = 3
		c.FillPolygon(e.color, []vg.Point{{X: at.X + 2, Y: at.Y - half}, {X: at.X + 2, Y: at.Y + half},
			{X: at.X + swatch, Y: at.Y + half}, {X: at.X + swatch, Y: at.Y - half}})
	}
}

// wrapLegend breaks a legend into rows that fit a width.
func wrapLegend(legend []entry, width vg.Length) [][]entry {
	var rows [][]entry
	s := style(sizeLegend, false)
	used := vg.Length(0)
	for _, e := range legend {
		if len(rows) == 0 || used+e.width(s) > width+10 {
			rows = append(rows, nil)
			used = 0
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], e)
		used += e.width(s)
	}
	return rows
}

// textLines are lines of text under each other.
type textLines []struct {
	text  string
	style text.Style
}

// add breaks a text into lines that fit a width, after spaces and hyphens.
func (t *textLines) add(content string, s text.Style, width vg.Length) {
	rest := strings.NewReplacer(" ", " \x00", "-", "-\x00").Replace(content)
	current := ""
	flush := func() {
		if current != "" {
			*t = append(*t, struct {
				text  string
				style text.Style
			}{strings.TrimSpace(current), s})
		}
	}
	for _, part := range strings.Split(rest, "\x00") {
		if current != "" && s.Width(strings.TrimSpace(current+part)) > width {
			flush()
			current = ""
		}
		current += part
	}
	flush()
}

func (t textLines) height() vg.Length {
	total := vg.Length(0)
	for _, l := range t {
		total += l.style.Font.Size * 1.45
	}
	return total
}

// draw writes the lines below a point.
func (t textLines) draw(c draw.Canvas, at vg.Point) {
	for _, l := range t {
		c.FillText(l.style, vg.Point{X: at.X, Y: at.Y - l.style.Font.Size}, l.text)
		at.Y -= l.style.Font.Size * 1.45
	}
}
