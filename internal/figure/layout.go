package figure

import (
	"bytes"
	"cmp"
	"image/color"
	"io"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	rowHeight  = vg.Length(10.5) // a line of a legend
	margin     = vg.Length(10)
	gap        = vg.Length(14) // between panels
	labelSpace = vg.Length(44) // about what a panel's y labels take
	usualWidth = 2.7           // of a panel, in inches
	usualTall  = 1.9
	wideTall   = 1.35 // times the height of others
	pageWide   = 5.2 * vg.Inch
	lineHeight = 1.45 // of titles and captions, times the size of their letters
)

// block is panels of one size in rows of equal length.
type block struct {
	panels        []Panel
	columns       int
	width, height vg.Length   // of one panel
	heads         []vg.Length // of titles and legends above each row
}

func newBlock(panels []Panel, columns int, width, height vg.Length) block {
	rows := (len(panels) + columns - 1) / columns
	b := block{panels, columns, width, height, make([]vg.Length, rows)}
	for i, p := range panels {
		row := i / columns
		head := p.titleHeight() + 6 + rowHeight*vg.Length(len(p.legend(width-labelSpace)))
		b.heads[row] = max(b.heads[row], head)
	}
	return b
}

// blocks cuts a figure into rows of its usual panels and wide ones between them.
func (f Figure) blocks() (out []block) {
	width := vg.Length(cmp.Or(f.Width, usualWidth)) * vg.Inch
	height := vg.Length(cmp.Or(f.Height, usualTall)) * vg.Inch
	usual := 0
	for _, p := range f.Panels {
		if !p.Wide {
			usual++
		}
	}
	columns := max(min(f.Columns, usual), 1)
	for i := 0; i < len(f.Panels); {
		wide, end := f.Panels[i].Wide, i+1
		for end < len(f.Panels) && !wide && !f.Panels[end].Wide {
			end++
		}
		if wide {
			out = append(out, newBlock(f.Panels[i:end], 1, span(columns, width), height*wideTall))
		} else {
			out = append(out, newBlock(f.Panels[i:end], columns, width, height))
		}
		i = end
	}
	return out
}

// span is the extent of n panels beside or below each other.
func span(n int, each vg.Length) vg.Length { return each*vg.Length(n) + gap*vg.Length(n-1) }

func (b block) wide() vg.Length { return span(b.columns, b.width) }

func (b block) tall() vg.Length {
	height := span(len(b.heads), b.height)
	for i := range b.heads {
		height += b.heads[i]
	}
	return height
}

// draw draws the block's panels below the top of a canvas.
func (b block) draw(c draw.Canvas, left, top vg.Length) {
	rows := len(b.heads)
	grid := make([][]*plot.Plot, rows)
	for i := range grid {
		grid[i] = make([]*plot.Plot, b.columns)
	}
	for i, p := range b.panels {
		grid[i/b.columns][i%b.columns] = p.render()
	}
	// The rows are aligned without their heads, and then moved apart.
	area := draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
		Min: vg.Point{X: left, Y: top - span(rows, b.height)}, Max: vg.Point{X: left + b.wide(), Y: top}}}
	cells := plot.Align(grid, draw.Tiles{Rows: rows, Cols: b.columns, PadX: gap, PadY: gap}, area)
	down := vg.Length(0)
	for row := range rows {
		down += b.heads[row]
		for column := range min(b.columns, len(b.panels)-row*b.columns) {
			p, made, cell := b.panels[row*b.columns+column], grid[row][column], cells[row][column]
			cell.Min.Y -= down
			cell.Max.Y -= down
			made.Draw(cell)
			p.drawHead(made.DataCanvas(cell), b.heads[row], b.width-labelSpace)
		}
	}
}

// PNG draws the figure; one without panels says that nothing is defined.
func (f Figure) PNG(w io.Writer, dpi int) error {
	if len(f.Panels) == 0 {
		f.Panels = []Panel{{}}
	}
	blocks := f.blocks()
	width, height := vg.Length(0), vg.Length(0)
	for _, b := range blocks {
		width = max(width, b.wide())
		height += b.tall() + gap
	}
	bold, plain := style(sizeFigure, true), style(sizeCaption, false)
	plain.Color = color.Gray{90}
	title, caption := wrap(f.Title, bold, width), wrap(f.Caption, plain, width)
	head := lineHeight*(sizeFigure*vg.Length(len(title))+sizeCaption*vg.Length(len(caption))) + 6
	image := vgimg.NewWith(vgimg.UseWH(width+2*margin, height+2*margin+head-gap), vgimg.UseDPI(dpi),
		vgimg.UseBackgroundColor(color.White))
	canvas := draw.New(image)
	top := canvas.Max.Y - margin
	top = writeLines(canvas, title, bold, top)
	top = writeLines(canvas, caption, plain, top) - 6
	for _, b := range blocks {
		b.draw(canvas, margin, top)
		top -= b.tall() + gap
	}
	_, err := vgimg.PngCanvas{Canvas: image}.WriteTo(w)
	return err
}

// SVG draws each panel by itself, as elements of a page that arranges them.
func (f Figure) SVG() (out [][]byte) {
	for _, b := range f.blocks() {
		for _, p := range b.panels {
			if p.Wide { // narrower than in print: a page may be
				b.width = min(b.width, pageWide)
			}
			single := newBlock([]Panel{p}, 1, b.width, b.height)
			image := vgsvg.New(single.width+2*margin, single.tall()+2*margin)
			canvas := draw.New(image)
			single.draw(canvas, margin, canvas.Max.Y-margin)
			var content bytes.Buffer
			_, _ = image.WriteTo(&content) // memory takes everything
			// Arial and its like have Liberation's widths.
			out = append(out, bytes.ReplaceAll(content.Bytes(), []byte("font-family:Liberation Sans;"),
				[]byte("font-family:Liberation Sans,Arimo,Arial,Helvetica,sans-serif;")))
		}
	}
	return out
}

// wrap breaks a text into lines that fit a width.
func wrap(content string, s text.Style, width vg.Length) (lines []string) {
	for _, word := range strings.Fields(content) {
		if n := len(lines) - 1; n >= 0 && s.Width(lines[n]+" "+word) <= width {
			lines[n] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}

// writeLines writes lines below a height, and returns where they end.
func writeLines(c draw.Canvas, lines []string, s text.Style, top vg.Length) vg.Length {
	for _, line := range lines {
		c.FillText(s, vg.Point{X: margin, Y: top - s.Font.Size}, line)
		top -= s.Font.Size * lineHeight
	}
	return top
}

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
