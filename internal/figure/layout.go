package figure

import (
	"bytes"
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
	rowHeight  = vg.Length(10.5) // a line of a legend, or below an axis
	margin     = vg.Length(10)
	swatch     = vg.Length(13) // what stands before a legend's text
	gap        = vg.Length(14) // between panels
	labelSpace = vg.Length(44) // about what a panel's y labels take
	usualWidth = 2.7           // of a panel, in inches
	usualTall  = 1.9
	wideTall   = 1.35 // times the height of others
	pageWide   = 5.2 * vg.Inch
)

// block is panels of one size in rows of equal length.
type block struct {
	panels        []Panel
	columns, rows int
	width, height vg.Length   // of one panel
	heads, feet   []vg.Length // of titles and legends above, and of lines below, each row
}

// blocks cuts a figure into rows of its usual panels and wide ones between them.
func (f Figure) blocks() (out []block) {
	width, height := vg.Length(usualWidth)*vg.Inch, vg.Length(usualTall)*vg.Inch
	if f.Width > 0 {
		width = vg.Length(f.Width) * vg.Inch
	}
	if f.Height > 0 {
		height = vg.Length(f.Height) * vg.Inch
	}
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
		b := block{panels: f.Panels[i:end], columns: columns, width: width, height: height}
		if wide {
			b.columns, b.width, b.height = 1, width*vg.Length(columns)+gap*vg.Length(columns-1), height*wideTall
		}
		b.measure()
		out, i = append(out, b), end
	}
	return out
}

func (b *block) measure() {
	b.rows = (len(b.panels) + b.columns - 1) / b.columns
	b.heads, b.feet = make([]vg.Length, b.rows), make([]vg.Length, b.rows)
	for i, p := range b.panels {
		row := i / b.columns
		b.heads[row] = max(b.heads[row], p.headHeight(b.width-labelSpace))
		b.feet[row] = max(b.feet[row], rowHeight*vg.Length(len(p.X.Rows)))
	}
}

// tall is the height of the block.
func (b block) tall() vg.Length {
	height := b.height*vg.Length(b.rows) + gap*vg.Length(b.rows-1)
	for i := range b.rows {
		height += b.heads[i] + b.feet[i]
	}
	return height
}

// draw draws the block's panels below the top of a canvas.
func (b block) draw(c draw.Canvas, left, top vg.Length) error {
	grid := make([][]*plot.Plot, b.rows)
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
	body := b.height*vg.Length(b.rows) + gap*vg.Length(b.rows-1)
	area := draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{Min: vg.Point{X: left, Y: top - body},
		Max: vg.Point{X: left + b.width*vg.Length(b.columns) + gap*vg.Length(b.columns-1), Y: top}}}
	cells := plot.Align(grid, draw.Tiles{Rows: b.rows, Cols: b.columns, PadX: gap, PadY: gap}, area)
	for i, p := range b.panels {
		row := i / b.columns
		cell, made := cells[row][i%b.columns], grid[row][i%b.columns]
		down := b.heads[row]
		for above := range row {
			down += b.heads[above] + b.feet[above]
		}
		cell.Min.Y -= down
		cell.Max.Y -= down
		made.Draw(cell)
		data := made.DataCanvas(cell)
		p.drawHead(data, b.heads[row], b.width-labelSpace)
		p.drawFoot(cell, data, made)
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
		width = max(width, b.width*vg.Length(b.columns)+gap*vg.Length(b.columns-1)+2*margin)
		height += b.tall() + gap
	}
	titles := textLines{}
	titles.add(f.Title, style(sizeFigure, true), width-2*margin)
	caption := style(sizeCaption, false)
	caption.Color = color.Gray{90}
	titles.add(f.Caption, caption, width-2*margin)
	height += 2*margin + titles.height() + 6 - gap
	image := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dpi), vgimg.UseBackgroundColor(color.White))
	canvas := draw.New(image)
	top := canvas.Max.Y - margin
	titles.draw(canvas, vg.Point{X: margin, Y: top})
	top -= titles.height() + 6
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
			single := block{panels: []Panel{p}, columns: 1, width: b.width, height: b.height}
			if p.Wide { // narrower than in print: a page may be
				single.width = min(b.width, pageWide)
			}
			single.measure()
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

// legend is the marks with labels, each label with its colour and kind once.
func (p Panel) legend() (out []Mark) {
	for _, m := range p.Marks {
		same := func(o Mark) bool { return o.Label == m.Label && o.Color == m.Color && o.Kind == m.Kind }
		if m.Label != "" && !slices.ContainsFunc(out, same) {
			out = append(out, m)
		}
	}
	return out
}
