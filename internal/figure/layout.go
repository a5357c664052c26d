package figure

import (
	"bytes"
	"cmp"
	"image/color"
	"io"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	rowHeight  = vg.Length(10.5) // a line of a legend, or below an axis
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
	heads, feet   []vg.Length // of titles and legends above, and of lines below, each row
}

func newBlock(panels []Panel, columns int, width, height vg.Length) block {
	rows := (len(panels) + columns - 1) / columns
	b := block{panels, columns, width, height, make([]vg.Length, rows), make([]vg.Length, rows)}
	for i, p := range panels {
		row := i / columns
		b.heads[row] = max(b.heads[row], p.headHeight(width-labelSpace))
		b.feet[row] = max(b.feet[row], rowHeight*vg.Length(len(p.X.Rows)))
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
		height += b.heads[i] + b.feet[i]
	}
	return height
}

// draw draws the block's panels below the top of a canvas.
func (b block) draw(c draw.Canvas, left, top vg.Length) error {
	rows := len(b.heads)
	grid := make([][]*plot.Plot, rows)
	for i := range grid {
		grid[i] = make([]*plot.Plot, b.columns)
	}
	for i, p := range b.panels {
		made, err := p.render()
		if err != nil {
			return err
		}
		grid[i/b.columns][i%b.columns] = made
	}
	// The rows are aligned without their heads and feet, and then moved apart.
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
			data := made.DataCanvas(cell)
			p.drawHead(data, b.heads[row], b.width-labelSpace)
			p.drawFoot(cell, data, made)
		}
		down += b.feet[row]
	}
	return nil
}

// drawFoot writes the lines below an axis of places, and before each what it is.
func (p Panel) drawFoot(cell, data draw.Canvas, made *plot.Plot) {
	x, _ := made.Transforms(&data)
	centred, left := style(sizeTick, false), style(sizeTick, false)
	centred.XAlign, left.Color = draw.XCenter, color.Gray{90}
	for i, row := range p.X.Rows {
		y := cell.Min.Y - rowHeight*vg.Length(i) - vg.Points(sizeTick)*0.9
		data.FillText(left, vg.Point{X: cell.Min.X, Y: y}, row.Head)
		for k, content := range row.Cells {
			data.FillText(centred, vg.Point{X: x(float64(k)), Y: y}, content)
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
		if err := b.draw(canvas, margin, top); err != nil {
			return err
		}
		top -= b.tall() + gap
	}
	_, err := vgimg.PngCanvas{Canvas: image}.WriteTo(w)
	return err
}

// SVG draws each panel by itself, as elements of a page that arranges them.
func (f Figure) SVG() ([][]byte, error) {
	var out [][]byte
	for _, b := range f.blocks() {
		for _, p := range b.panels {
			if p.Wide { // narrower than in print: a page may be
				b.width = min(b.width, pageWide)
			}
			single := newBlock([]Panel{p}, 1, b.width, b.height)
			image := vgsvg.New(single.width+2*margin, single.tall()+2*margin)
			canvas := draw.New(image)
			if err := single.draw(canvas, margin, canvas.Max.Y-margin); err != nil {
				return nil, err
			}
			var content bytes.Buffer
			if _, err := image.WriteTo(&content); err != nil {
				return nil, err
			}
			// Arial and its like have Liberation's widths.
			out = append(out, bytes.ReplaceAll(content.Bytes(), []byte("font-family:Liberation Sans;"),
				[]byte("font-family:Liberation Sans,Arimo,Arial,Helvetica,sans-serif;")))
		}
	}
	return out, nil
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
