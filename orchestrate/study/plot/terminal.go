package plot

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/guptarohit/asciigraph"

	"gyre/internal/statistics"
	"gyre/orchestrate/run/rundir"
)

const (
	terminalWidth  = 60
	terminalHeight = 10
)

// Terminal writes a run's validation success over the steps as text: a curve per tag, and its first and last value with their intervals.
func Terminal(w io.Writer, r *rundir.Run) error {
	keys := slices.DeleteFunc(r.Keys("val-env/*/success"), func(key string) bool { return strings.Contains(key, "/non-zero/") })
	if len(keys) == 0 {
		return fmt.Errorf("%s: nothing was validated: expected metrics named val-env/TAG/success", r.Name)
	}
	episodes := r.ValidationEpisodes()
	for _, key := range keys {
		tag := strings.TrimSuffix(strings.TrimPrefix(key, "val-env/"), "/success")
		points := r.Series(key)
		first, last := points[0], points[len(points)-1]
		if len(points) > 1 {
			if _, err := fmt.Fprintln(w, asciigraph.Plot(alongSteps(points, terminalWidth), asciigraph.Height(terminalHeight),
				asciigraph.LowerBound(0), asciigraph.UpperBound(100), asciigraph.Precision(0), asciigraph.XAxisRange(float64(first.Step), float64(last.Step)),
				asciigraph.XAxisTickCount(5), asciigraph.XAxisValueFormatter(func(step float64) string { return fmt.Sprintf("%.0f", step) }),
				asciigraph.Caption(fmt.Sprintf("%s: validation success in %% over the steps", tag)))); err != nil {
				return err
			}
		}
		for _, p := range slices.Compact([]rundir.Point{first, last}) {
			text := fmt.Sprintf("  after step %-4d %5.1f %%", p.Step, 100*p.Value)
			if n := episodes[tag]; n > 0 {
				low, high := statistics.Wilson(p.Value, n, 0.95)
				text += fmt.Sprintf("  [%.1f, %.1f] of %d episodes", 100*low, 100*high, n)
			}
			if _, err := fmt.Fprintln(w, text); err != nil {
				return err
			}
		}
	}
	return nil
}

// alongSteps interpolates points at equal distances over their steps, in percent: the curve's horizontal axis is the step, however the
// validations lie.
func alongSteps(points []rundir.Point, n int) []float64 {
	out := make([]float64, n)
	first, last := float64(points[0].Step), float64(points[len(points)-1].Step)
	next := 1
	for i := range out {
		at := first + (last-first)*float64(i)/float64(n-1)
		for next < len(points)-1 && float64(points[next].Step) < at {
			next++
		}
		a, b := points[next-1], points[next]
		share := (at - float64(a.Step)) / float64(b.Step-a.Step)
		out[i] = 100 * (a.Value + share*(b.Value-a.Value))
	}
	return out
}
