package figure

import (
	"fmt"
	"io"

	"github.com/guptarohit/asciigraph"

	"gyre/internal/statistics"
)

const (
	terminalHeight = 10
	terminalMargin = 20 // what axis and labels take
)

// Terminal writes the panel's curves as text, no wider than the terminal.
func (p Panel) Terminal(w io.Writer, width int) error {
	for _, m := range p.Marks {
		if m.Kind != Line && m.Kind != Dots || len(m.X) < 2 {
			continue
		}
		options := []asciigraph.Option{asciigraph.Height(terminalHeight), asciigraph.Precision(0),
			asciigraph.XAxisRange(m.X[0], m.X[len(m.X)-1]),
			asciigraph.XAxisTickCount(5),
			asciigraph.XAxisValueFormatter(func(x float64) string { return fmt.Sprintf("%.0f", x) }),
			asciigraph.Caption(fmt.Sprintf("%s %s over the %s", m.Label, p.Y.Label, p.X.Label))}
		if p.Y.Low < p.Y.High {
			options = append(options, asciigraph.LowerBound(p.Y.Low), asciigraph.UpperBound(p.Y.High))
		}
		if _, err := fmt.Fprintln(w, asciigraph.Plot(along(m, min(60, width-terminalMargin)), options...)); err != nil {
			return err
		}
	}
	return nil
}

// along interpolates a curve at n equal distances over x, so that its horizontal axis is true however the points lie.
func along(m Mark, n int) []float64 {
	out := make([]float64, n)
	first, last, next := m.X[0], m.X[len(m.X)-1], 1
	for i := range out {
		at := first + (last-first)*float64(i)/float64(n-1)
		for next < len(m.X)-1 && m.X[next] < at {
			next++
		}
		share := (at - m.X[next-1]) / (m.X[next] - m.X[next-1])
		if out[i] = m.Y[next-1] + share*(m.Y[next]-m.Y[next-1]); !statistics.Finite(out[i]) {
			out[i] = 0
		}
	}
	return out
}
