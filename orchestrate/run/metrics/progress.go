package metrics

import (
	"fmt"
	"time"

	"github.com/schollz/progressbar/v3"
)

// Bar shows how far a piece of work is: a bar with the time left on a terminal, a plain line now and then elsewhere.
type Bar struct {
	console *Console
	label   string
	total   int
	done    int
	begun   time.Time
	shown   time.Time
	bar     *progressbar.ProgressBar
}

// Bar starts showing progress. One bar is shown at a time: a new one replaces the old. Close it.
func (c *Console) Bar(label string, total int) *Bar {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bar != nil {
		c.bar.clear()
	}
	now := time.Now()
	b := &Bar{console: c, label: label, total: total, begun: now, shown: now}
	if c.terminal {
		b.bar = progressbar.NewOptions(total,
			progressbar.OptionSetWriter(c.out), progressbar.OptionSetDescription(label), progressbar.OptionSetWidth(30),
			progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(true),
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionClearOnFinish(), progressbar.OptionEnableColorCodes(false))
	}
	c.bar = b
	return b
}

// Set says how much is done.
func (b *Bar) Set(done int) {
	b.console.mu.Lock()
	defer b.console.mu.Unlock()
	b.done = done
	if b.console.bar != b {
		return
	}
	if b.bar != nil {
		// An error here means that the terminal went away: the work goes on without it.
		_ = b.bar.Set(min(done, b.total))
		return
	}
	if now := time.Now(); now.Sub(b.shown) >= b.console.Quiet {
		b.shown = now
		fmt.Fprintln(b.console.out, b.text(now))
	}
}

// Close removes the bar.
func (b *Bar) Close() {
	b.console.mu.Lock()
	defer b.console.mu.Unlock()
	if b.console.bar == b {
		b.clear()
		b.console.bar = nil
	}
}

// text is the plain line: "rollout 12/128, 31 s left".
func (b *Bar) text(now time.Time) string {
	text := fmt.Sprintf("%s %d/%d", b.label, b.done, b.total)
	if b.done > 0 && b.done < b.total {
		left := time.Duration(float64(now.Sub(b.begun)) * float64(b.total-b.done) / float64(b.done))
		text += fmt.Sprintf(", %s left", left.Round(time.Second))
	}
	return text
}

func (b *Bar) clear() {
	if b.bar != nil {
		_ = b.bar.Clear()
	}
}
