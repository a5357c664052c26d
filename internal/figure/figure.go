// Package figure holds figures as data, and draws them: as PNG for print, as SVG panels for a page, and as text for a
// terminal.
//
// A Figure is panels; a Panel is axes and marks; a Mark is values with a colour and a label. Ranges, ticks, units,
// legends and places follow from them. Values that are not finite are gaps. Everything is drawn with gonum's plot
// package. Colours are those of Okabe and Ito (2008), which stay apart for readers with any common colour blindness.
package figure

import (
	"image/color"
	"io"
	"math"
	"slices"

	"gyre/internal/atomicfile"
	"gyre/internal/statistics"
	"gyre/internal/table"
)

// PrintDPI is the resolution that journals ask for, in dots per inch.
const PrintDPI = 300

// Figure is panels of one size in rows, and some above them that are as wide as a row.
type Figure struct {
	Name           string // of its file
	Title, Caption string
	Columns        int
	Width, Height  float64 // of a panel in inches, with its labels and without its title; 0 = the usual
	Panels         []Panel
}

// Panel is one plot.
type Panel struct {
	Title string
	X, Y  Axis
	Marks []Mark
	Wide  bool // takes a whole row, and more height
}

// Axis describes one axis of a panel. Its range is that of the marks' values and of Low to High, where Low < High.
type Axis struct {
	Label     string
	Low, High float64
	Log       bool     // logarithmic where all values are positive and far apart
	Integer   bool     // the values are whole numbers, such as steps
	Names     []string // of the positions 0, 1, …, in lines: an axis of places instead of numbers
	Slanted   bool     // names are written at an angle
}

// Kind is how a mark is drawn.
type Kind int

// The kinds of marks.
const (
	Line    Kind = iota // through the points; with Low and High, a band between them
	Dots                // a dot at each point; with Low and High, error bars
	Rings               // a ring at each point
	Crosses             // a cross at each point
	Bars                // from 0 to each value; with Low and High, error bars; with Text, the values as written
	Area                // the space between a line and 0
	Boxes               // a box plot of Groups[i] at X[i]
	Words               // Text beside each point
	Tiles               // a square at each point, darker with larger Z, with Text on it
)

// Mark is values drawn in one way.
type Mark struct {
	Kind       Kind
	X, Y       []float64
	Low, High  []float64 // nil = none
	Z          []float64
	Groups     [][]float64
	Text       []string
	Label      string // in the legend; "" = not there
	Color      color.NRGBA
	Width      float64 // of lines, radius of dots, in points; 0 = the usual
	Horizontal bool    // bars and error bars lie along the x axis
	Upwards    bool    // words are written upwards
}

// Curve is a line of a table's column over another, with a band between the ends of its intervals. Without an x column
// the rows stand at 0, 1, ….
func Curve(t *table.Table, x, y, label string, c color.NRGBA) Mark {
	m := Mark{Label: label, Color: c}
	if m.Y, m.Low, m.High = t.Values(y); x != "" {
		m.X, _, _ = t.Values(x)
		return m
	}
	for i := range m.Y {
		m.X = append(m.X, float64(i))
	}
	return m
}

// Times is the mark with its values and their bounds multiplied.
func (m Mark) Times(factor float64) Mark {
	for _, column := range []*[]float64{&m.Y, &m.Low, &m.High} {
		*column = slices.Clone(*column)
		for i := range *column {
			(*column)[i] *= factor
		}
	}
	return m
}

// Add appends a point.
func (m *Mark) Add(x, y float64) { m.X, m.Y = append(m.X, x), append(m.Y, y) }

// AddInterval appends a point with its bounds.
func (m *Mark) AddInterval(x, y, low, high float64) {
	m.Add(x, y)
	m.Low, m.High = append(m.Low, low), append(m.High, high)
}

// Add appends marks.
func (p *Panel) Add(marks ...Mark) { p.Marks = append(p.Marks, marks...) }

// Note appends a sentence to the caption.
func (f *Figure) Note(text string) {
	if f.Caption != "" && text != "" {
		f.Caption += "; "
	}
	f.Caption += text
}

// Save writes the figure to a PNG file.
func (f Figure) Save(path string, dpi int) error {
	return atomicfile.Write(path, func(w io.Writer) error { return f.PNG(w, dpi) })
}

// limits are the smallest and the largest of a range.
type limits struct{ low, high float64 }

func nothing() limits { return limits{math.Inf(1), math.Inf(-1)} }

func (l *limits) include(values ...float64) {
	for _, v := range values {
		if statistics.Finite(v) {
			l.low, l.high = min(l.low, v), max(l.high, v)
		}
	}
}

func (l limits) empty() bool { return l.low > l.high }

// extent is what the marks' values reach.
func (p Panel) extent() (x, y limits) {
	x, y = nothing(), nothing()
	for _, m := range p.Marks {
		values := &y
		if m.Horizontal {
			values = &x
		}
		for i := range m.X {
			if i < len(m.Y) && !statistics.Finite(m.Y[i]) {
				continue
			}
			x.include(m.X[i])
			if i < len(m.Y) {
				y.include(m.Y[i])
			}
			if m.Kind == Bars || m.Kind == Area {
				values.include(0)
			}
			if m.Kind == Boxes {
				values.include(m.Groups[i]...)
			}
		}
		values.include(m.Low...)
		values.include(m.High...)
	}
	return x, y
}

// Empty tells whether a panel has nothing to show.
func (p Panel) Empty() bool {
	x, y := p.extent()
	return x.empty() || y.empty()
}

// ShareY gives panels the same range of values, so that they can be compared.
func ShareY(panels []Panel) {
	whole, log := nothing(), true
	for _, p := range panels {
		_, y := p.extent()
		y = p.Y.widen(y)
		whole.include(y.low, y.high)
		log = log && p.Y.Log
	}
	for i := range panels {
		if y := &panels[i].Y; !whole.empty() {
			y.Low, y.High, y.Log = whole.low, whole.high, log
		}
	}
}

// The palette of Okabe and Ito, "Color Universal Design" (2008).
var (
	Blue      = color.NRGBA{0, 114, 178, 255}
	Vermilion = color.NRGBA{213, 94, 0, 255}
	Green     = color.NRGBA{0, 158, 115, 255}
	Purple    = color.NRGBA{204, 121, 167, 255}
	Orange    = color.NRGBA{230, 159, 0, 255}
	Sky       = color.NRGBA{86, 180, 233, 255}
	Yellow    = color.NRGBA{240, 228, 66, 255}
	Brown     = color.NRGBA{140, 81, 10, 255}
	Grey      = color.NRGBA{150, 150, 150, 255}
	Ink       = color.NRGBA{38, 38, 38, 255}
)

var cycle = []color.NRGBA{Blue, Vermilion, Green, Purple, Orange, Sky, Ink, Brown}

// Colors is the number of colours that Color tells apart.
var Colors = len(cycle)

// Color is the i-th colour that series of a panel take.
func Color(i int) color.NRGBA { return cycle[i%len(cycle)] }

// Light is the colour thinned with white: the raw values behind a smoothed line.
func Light(c color.NRGBA) color.NRGBA {
	mix := func(v uint8) uint8 { return uint8(255 - (255-int(v))*3/10) }
	return color.NRGBA{mix(c.R), mix(c.G), mix(c.B), 255}
}

// finite gives the runs of positions at which all columns are numbers.
func finite(columns ...[]float64) (runs [][]int) {
	open := false
	for i := range columns[0] {
		whole := !slices.ContainsFunc(columns, func(c []float64) bool { return !statistics.Finite(c[i]) })
		if whole && !open {
			runs = append(runs, nil)
		}
		if open = whole; whole {
			runs[len(runs)-1] = append(runs[len(runs)-1], i)
		}
	}
	return runs
}
