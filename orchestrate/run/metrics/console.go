package metrics

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"gyre/internal/statistics"
	"gyre/internal/table"
)

// columns are the metrics of the console line of a training step or epoch, the most telling first: what has no value
// is left out, and on a terminal what does not fit. Columns have this order whenever their first value comes. A key is
// a pattern as in path.Match, in which * stands for one part of a name ("train/*/success" matches every tag).
var columns = []struct{ key, label, format string }{
	{"val-env/*/success", "val_success", "%.3f"},
	{"val-env/*/episodic_return", "val_return", "%.3f"},
	{"train/*/success", "success", "%.3f"},
	{"train/loss", "loss", "%.4f"},
	{"val/loss", "val_loss", "%.4f"},
	{"critic/score/mean", "score", "%.3f"},
	{"rollout/in_group_reward_std", "reward_std", "%.3f"},
	{"rollout/filter_kept_ratio", "kept", "%.2f"},
	{"response_length/cut_ratio", "cut", "%.2f"},
	{"actor/entropy", "entropy", "%.3f"},
	{"actor/ppo_kl", "kl", "%.2e"},
	{"actor/grad_norm", "grad", "%.3f"},
	{"timing_s/step", "s", "%.1f"},
	{"actor/pg_loss", "loss", "%.4f"},
	{"critic/vf_loss", "vf_loss", "%.4f"},
	{"response_length", "tokens", "%.0f"},
	{"timing_s/gen", "gen_s", "%.1f"},
	{"timing_s/update_actor", "update_s", "%.1f"},
	{"perf/gen_tokens_per_s", "gen_tok/s", "%.0f"},
	{"perf/update_tokens_per_s", "update_tok/s", "%.0f"},
	{"perf/useful", "util", "%.2f"},
	{"perf/mfu/update_actor", "mfu", "%.2f"},
	{"perf/peak_rss_gib", "GiB", "%.1f"},
}

// spared says which values of a column people need not see.
var spared = map[string]func(key string, values map[string]any) bool{
	"response_length/cut_ratio": func(key string, values map[string]any) bool { return values[key] == 0.0 },
	"val-env/*/episodic_return": func(key string, values map[string]any) bool { // where there is a success
		_, success := values[strings.TrimSuffix(key, "episodic_return")+"success"]
		return success
	},
}

// Console shows a run's progress on one stream. Writing to it (it is an io.Writer) and printing steps work beside a
// progress bar: the bar is cleared first and comes back below. It may be used by several goroutines.
type Console struct {
	// Quiet is how long a piece of work may go on without a terminal before a line about it is written, and how often.
	Quiet time.Duration

	mu       sync.Mutex // guards writes to out, bar, table and head
	out      io.Writer
	terminal bool
	colour   bool
	bar      *Bar
	table    rows  // shown so far, on a terminal
	head     *head // above them; nil where there is none
}

// NewConsole writes to out. On a terminal it draws progress bars, and colours unless NO_COLOR is set or TERM is dumb;
// elsewhere it writes plain lines without control codes.
func NewConsole(out io.Writer) *Console {
	c := &Console{Quiet: 10 * time.Second, out: out}
	if file, ok := out.(*os.File); ok {
		c.terminal = term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb"
		if _, height, err := term.GetSize(int(file.Fd())); c.terminal && err == nil && height > headLines+5 {
			c.head = &head{}
		}
	}
	c.colour = c.terminal && os.Getenv("NO_COLOR") == ""
	return c
}

// Write prints a message, which should end with a newline.
func (c *Console) Write(message []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bar != nil {
		c.bar.clear()
	}
	if c.head != nil && c.head.top != nil {
		return len(message), c.head.add(c.out, string(message))
	}
	return c.out.Write(message)
}

// Step prints a step out of total: on a terminal as a row of a table that is no wider than the terminal, below a head
// with the time left and curves, elsewhere as the whole line.
func (c *Console) Step(step, total int, values map[string]any) {
	if !c.terminal {
		fmt.Fprintln(c, StepText(step, total, values))
		return
	}
	c.mu.Lock()
	width := table.Width(c.out)
	header, row := c.table.row(width, step, total, cells(values))
	if c.head != nil {
		c.head.note(time.Now(), width, step, total, values)
	}
	c.mu.Unlock()
	if header != "" && c.colour {
		header = "\x1b[2m" + header + "\x1b[0m" // dim
	}
	if header != "" {
		row = header + "\n" + row
	}
	fmt.Fprintln(c, row)
}

// StepText is the whole plain text of a step, as for a log file.
func StepText(step, total int, values map[string]any) string {
	parts := []string{fmt.Sprintf("step %*d/%d", len(fmt.Sprint(total)), step, total)}
	for _, cell := range cells(values) {
		parts = append(parts, cell.label+" "+cell.text)
	}
	return strings.Join(parts, "  ")
}

// cell is a value of a step for people.
type cell struct {
	key, label, text string
	header           string // the label, shorter where no other tag has such a value
	order            int    // of its column
}

// cells are the values that the columns name, in their order.
func cells(values map[string]any) (out []cell) {
	keys := slices.Sorted(maps.Keys(values))
	for order, column := range columns {
		before, after, wild := strings.Cut(column.key, "*")
		first := len(out)
		for _, key := range keys {
			matched, _ := path.Match(column.key, key)
			x, ok := values[key].(float64)
			if !matched || !ok {
				continue
			}
			if spare := spared[column.key]; spare != nil && spare(key, values) {
				continue
			}
			label, text := column.label, fmt.Sprint(x)
			if wild { // what the * stands for tells tags apart: success[sokoban]
				label += "[" + strings.TrimSuffix(strings.TrimPrefix(key, before), after) + "]"
			}
			if statistics.Finite(x) {
				text = fmt.Sprintf(column.format, x)
			}
			out = append(out, cell{key, label, text, label, order})
		}
		if len(out) == first+1 {
			out[first].header = column.label
		}
	}
	return out
}

// rows keeps the columns of a terminal in place from row to row.
type rows struct {
	columns []cell // without texts
	widths  map[string]int
	below   int // rows since the last header
}

// headerEvery is how many rows are printed before the names of the columns are repeated.
const headerEvery = 20

// row lays a step out in no more than width characters; header is not empty where the names of the columns have to be
// (re)printed. Columns stay from the first step on that has them.
func (t *rows) row(width, step, total int, cells []cell) (header, row string) {
	if t.widths == nil {
		t.widths = map[string]int{}
	}
	changed := t.below%headerEvery == 0
	texts := map[string]string{}
	for _, c := range cells {
		texts[c.key] = c.text
		if _, known := t.widths[c.key]; !known {
			at := slices.IndexFunc(t.columns, func(x cell) bool { return x.order > c.order })
			if at < 0 {
				at = len(t.columns)
			}
			t.columns = slices.Insert(t.columns, at, c)
			t.widths[c.key], changed = len(c.header), true
		}
		if len(c.text) > t.widths[c.key] {
			t.widths[c.key], changed = len(c.text), true
		}
	}
	used := max(len(fmt.Sprintf("%d/%d", total, total)), len("step"))
	header, row = fmt.Sprintf("%*s", used, "step"), fmt.Sprintf("%*s", used, fmt.Sprintf("%d/%d", step, total))
	for _, x := range t.columns {
		n := t.widths[x.key]
		if used += 2 + n; used > width {
			break
		}
		header += fmt.Sprintf("  %*s", n, x.header)
		row += fmt.Sprintf("  %*s", n, texts[x.key])
	}
	if !changed {
		t.below++
		return "", row
	}
	t.below = 1
	return header, row
}

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
