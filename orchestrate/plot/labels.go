package plot

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// pointLabels writes labels next to points, each at the first place around its point where it covers neither a point nor an
// earlier label.
type pointLabels struct{ points labelled }

// Plot implements plot.Plotter.
func (l pointLabels) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	s := style(sizeValue, true)
	s.XAlign, s.YAlign = draw.XCenter, draw.YCenter
	var taken []vg.Rectangle
	for _, q := range l.points {
		const r = 3
		at := vg.Point{X: x(q.X), Y: y(q.Y)}
		taken = append(taken, vg.Rectangle{Min: vg.Point{X: at.X - r, Y: at.Y - r}, Max: vg.Point{X: at.X + r, Y: at.Y + r}})
	}
	for _, q := range l.points {
		at := vg.Point{X: x(q.X), Y: y(q.Y)}
		place, found := vg.Point{}, false
		for _, distance := range []vg.Length{9, 16, 24} {
			for _, direction := range []vg.Point{{Y: 1}, {Y: -1}, {X: 1.1}, {X: -1.1}, {X: 0.9, Y: 0.8}, {X: -0.9, Y: 0.8}, {X: 0.9, Y: -0.8}, {X: -0.9, Y: -0.8}} {
				place = at.Add(direction.Scale(distance))
				box := s.Rectangle(q.label).Add(place)
				if inside(box, c.Rectangle) && !overlaps(box, taken) {
					taken, found = append(taken, box), true
					break
				}
			}
			if found {
				break
			}
		}
		if !found {
			place = at.Add(vg.Point{Y: 9})
		}
		c.FillText(s, place, q.label)
	}
}

func inside(box, frame vg.Rectangle) bool {
	return box.Min.X >= frame.Min.X && box.Max.X <= frame.Max.X && box.Min.Y >= frame.Min.Y && box.Max.Y <= frame.Max.Y
}

func overlaps(box vg.Rectangle, others []vg.Rectangle) bool {
	for _, o := range others {
		if box.Min.X < o.Max.X && o.Min.X < box.Max.X && box.Min.Y < o.Max.Y && o.Min.Y < box.Max.Y {
			return true
		}
	}
	return false
}
