package plot

import (
	"strings"

	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

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
