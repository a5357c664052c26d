package metrics

import (
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"gyre/internal/table"
)

// Column is one metric of the console line. Key is a pattern as in path.Match, in which * stands for one part of a
// name ("train/*/success" matches every tag).
type Column struct {
	Key, Label, Format string
}

// Columns is the usual console line of a training step or epoch, the most telling first: what has no value is left
// out, and on a terminal what does not fit. Columns have this order whenever their first value comes.
var Columns = []Column{
	{"val-env/*/success", "val_success", "%.3f"},
	{"train/*/success", "success", "%.3f"},
	{"train/loss", "loss", "%.4f"},
	{"val/loss", "val_loss", "%.4f"},
	{"critic/score/mean", "score", "%.3f"},
	{"rollout/in_group_reward_std", "reward_std", "%.3f"},
	{"rollout/filter_kept_ratio", "kept", "%.2f"},
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
	{"perf/mfu/update_actor", "mfu", "%.2f"},
	{"perf/peak_rss_gib", "GiB", "%.1f"},
}

// Console shows a run's progress on one stream. Writing to it (it is an io.Writer) and printing steps work beside a
// progress bar: the bar is cleared first and comes back below. It may be used by several goroutines.
type Console struct {
	Columns []Column
	// how long a piece of work may go on without a terminal before a line about it is written, and how often
	Quiet time.Duration

	mu       sync.Mutex
	out      io.Writer
	terminal bool
	colour   bool
	bar      *Bar
	table    rows
}

// NewConsole writes to out. On a terminal it draws progress bars, and colours unless NO_COLOR is set or TERM is dumb;
// elsewhere it writes plain lines without control codes.
func NewConsole(out io.Writer) *Console {
	c := &Console{Columns: Columns, Quiet: 10 * time.Second, out: out}
	if file, ok := out.(*os.File); ok {
		c.terminal = term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb"
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
	return c.out.Write(message)
}

// Step prints a step out of total: on a terminal as a row of a table that is no wider than the terminal, elsewhere as
// the whole line.
func (c *Console) Step(step, total int, values map[string]any) {
	if !c.terminal {
		fmt.Fprintln(c, c.Line(step, total, values))
		return
	}
	c.mu.Lock()
	header, row := c.table.row(table.Width(c.out), step, total, cells(c.Columns, values))
	c.mu.Unlock()
	const dim, reset = "\x1b[2m", "\x1b[0m"
	if header != "" && c.colour {
		header = dim + header + reset
	}
	if header != "" {
		row = header + "\n" + row
	}
	fmt.Fprintln(c, row)
}

// Line is the whole plain text of a step, as for a log file.
func (c *Console) Line(step, total int, values map[string]any) string {
	parts := []string{fmt.Sprintf("step %*d/%d", len(fmt.Sprint(total)), step, total)}
	for _, cell := range cells(c.Columns, values) {
		parts = append(parts, cell.label+" "+cell.text)
	}
	return strings.Join(parts, "  ")
}

// cell is a value of a step for people.
type cell struct {
	key, label, brief, text string
	order                   int // of its column
}

// cells are the values that the columns name, in their order.
func cells(columns []Column, values map[string]any) (out []cell) {
	keys := sortedKeys(values)
	for order, column := range columns {
		first := len(out)
		for _, key := range keys {
			if matched, _ := path.Match(column.Key, key); !matched {
				continue
			}
			if text, ok := format(column.Format, values[key]); ok {
				out = append(out, cell{key, label(column, key), label(column, key), text, order})
			}
		}
		if len(out) == first+1 { // there is no other tag to tell it from
			out[first].brief = column.Label
		}
	}
	return out
}

// rows keeps the columns of a terminal in place from row to row.
type rows struct {
	columns []column
	below   int // rows since the last header
}

type column struct {
	key, label   string
	width, order int
}

// headerEvery is how many rows are printed before the names of the columns are repeated.
const headerEvery = 20

// row lays a step out in no more than width characters; header is not empty where the names of the columns have to be
// (re)printed. Columns stay from the first step on that has them.
func (t *rows) row(width, step, total int, cells []cell) (header, row string) {
	changed := t.below%headerEvery == 0
	for _, c := range cells {
		i := slices.IndexFunc(t.columns, func(x column) bool { return x.key == c.key })
		if i < 0 {
			if i = slices.IndexFunc(t.columns, func(x column) bool { return x.order > c.order }); i < 0 {
				i = len(t.columns)
			}
			t.columns = slices.Insert(t.columns, i, column{key: c.key, label: c.brief, width: len(c.brief),
				order: c.order})
			changed = true
		}
		if len(c.text) > t.columns[i].width {
			t.columns[i].width, changed = len(c.text), true
		}
	}
	first := len(fmt.Sprintf("%d/%d", total, total))
	first = max(first, len("step"))
	var names, texts strings.Builder
	fmt.Fprintf(&names, "%*s", first, "step")
	fmt.Fprintf(&texts, "%*s", first, fmt.Sprintf("%d/%d", step, total))
	used := first
	for _, x := range t.columns {
		if used += 2 + x.width; used > width {
			break
		}
		text := ""
		if i := slices.IndexFunc(cells, func(c cell) bool { return c.key == x.key }); i >= 0 {
			text = cells[i].text
		}
		fmt.Fprintf(&names, "  %*s", x.width, x.label)
		fmt.Fprintf(&texts, "  %*s", x.width, text)
	}
	if changed {
		t.below, header = 0, names.String()
	}
	t.below++
	return header, texts.String()
}

// label adds what the * of a pattern stood for, so that tags are told apart: "success[sokoban]".
func label(column Column, key string) string {
	before, after, wild := strings.Cut(column.Key, "*")
	if !wild {
		return column.Label
	}
	return column.Label + "[" + strings.TrimSuffix(strings.TrimPrefix(key, before), after) + "]"
}

func format(layout string, value any) (string, bool) {
	switch v := value.(type) {
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Sprint(v), true
		}
		return fmt.Sprintf(layout, v), true
	case float32:
		return format(layout, float64(v))
	case int:
		return format(layout, float64(v))
	case int64:
		return format(layout, float64(v))
	}
	return "", false
}
