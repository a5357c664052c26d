package metrics

import (
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"gyre/internal/statistics"
	"gyre/internal/table"
)

// curves are the metrics that the head draws, under their names. The first two that a run has are shown.
var curves = []struct{ key, label string }{
	{"train/*/success", "success"},
	{"rollout/in_group_reward_std", "reward_std"},
	{"train/loss", "loss"},
	{"val/loss", "val_loss"},
}

// headLines is how many lines stay below the head at most; older messages are above it, whole, in the terminal's
// history.
const headLines = 10

// head is what a terminal shows of a run above its latest lines: the step, the time left and two curves. It is drawn
// with the lines below it as one block, in place of the block before, so that nothing moves but the lines.
type head struct {
	values map[string][]float64 // of the curves, in the order of steps
	begun  time.Time            // when step first was shown
	first  int
	top    []string   // the head itself
	below  [][]string // the lines of the messages below it
	drawn  int        // lines of the terminal that both take; 0 = nothing is shown
	width  int        // of the terminal when they were drawn
}

// note takes a step's values.
func (h *head) note(now time.Time, width, step, total int, values map[string]any) {
	if h.values == nil {
		h.values, h.begun, h.first = map[string][]float64{}, now, step
	}
	for _, c := range curves {
		var found []float64
		for key, value := range values {
			x, ok := value.(float64)
			if matched, _ := path.Match(c.key, key); matched && ok && statistics.Finite(x) {
				found = append(found, x)
			}
		}
		if found != nil {
			h.values[c.key] = append(h.values[c.key], statistics.Mean(found))
		}
	}
	left := ""
	if per, ok := h.perStep(now, step, values); ok && step < total {
		left = "about " + short(time.Duration(float64(total-step)*per*float64(time.Second))) + " left"
	}
	h.top = []string{between(fmt.Sprintf("step %d/%d", step, total), left, width)}
	var shown []string
	for _, c := range curves {
		if own := h.values[c.key]; own != nil && len(shown) < 2 {
			name := fmt.Sprintf("%s %.3f ", c.label, own[len(own)-1])
			shown = append(shown, name+sparkline(own, (width-2)/2-len(name)))
		}
	}
	if shown != nil {
		h.top = append(h.top, strings.Join(shown, "  "))
	}
}

// perStep is how many seconds a step takes, with what lies between steps; of the first, what it says itself.
func (h *head) perStep(now time.Time, step int, values map[string]any) (float64, bool) {
	if step > h.first {
		return now.Sub(h.begun).Seconds() / float64(step-h.first), true
	}
	own, ok := values["timing_s/step"].(float64)
	return own, ok
}

// short is a duration in its two largest units.
func short(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
}

// between puts one text to the left and one to the right of a line.
func between(left, right string, width int) string {
	return left + strings.Repeat(" ", max(2, width-len(left)-len(right))) + right
}

// sparkline draws values from their least to their largest in so many characters. Of more values than that, each
// character is the mean of its share.
func sparkline(values []float64, width int) string {
	const bars = "▁▂▃▄▅▆▇█"
	n := min(len(values), width)
	means := make([]float64, max(n, 0))
	low, high := math.Inf(1), math.Inf(-1)
	for i := range means {
		means[i] = statistics.Mean(values[i*len(values)/n : (i+1)*len(values)/n])
		low, high = min(low, means[i]), max(high, means[i])
	}
	var line strings.Builder
	for _, v := range means {
		at := 0
		if high > low {
			at = int(math.Round((v - low) / (high - low) * 7))
		}
		line.WriteRune([]rune(bars)[at])
	}
	return line.String()
}

// add puts a message below the head, in lines no wider than the terminal, and draws the block anew. Messages that no
// longer fit below the head are written above it for good.
func (h *head) add(out io.Writer, message string) error {
	width := table.Width(out)
	var b strings.Builder
	if h.drawn > 0 && width == h.width {
		fmt.Fprintf(&b, "\x1b[%dA\r\x1b[J", h.drawn)
	} else {
		h.below = nil // the terminal has broken the lines anew: what stands there stays
	}
	var own []string
	for _, line := range strings.Split(strings.TrimSuffix(message, "\n"), "\n") {
		for _, piece := range strings.Split(text.WrapSoft(line, width), "\n") {
			own = append(own, strings.TrimRight(piece, " "))
		}
	}
	h.below = append(h.below, own)
	for ; len(slices.Concat(h.below...)) > headLines; h.below = h.below[1:] {
		b.WriteString(strings.Join(h.below[0], "\n") + "\n")
	}
	lines := slices.Concat(append([][]string{h.top}, h.below...)...)
	b.WriteString(strings.Join(lines, "\n") + "\n")
	h.drawn, h.width = len(lines), width
	_, err := io.WriteString(out, b.String())
	return err
}
