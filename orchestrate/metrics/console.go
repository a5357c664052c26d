package metrics

import (
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"strings"
	"sync"

	"golang.org/x/term"
)

// Column is one metric of the console line. Key is a pattern as in path.Match, in which * stands for one part of a
// name ("train/*/success" matches every tag).
type Column struct {
	Key, Label, Format string
}

// Columns is the usual console line of a training step or epoch: what has no value is left out.
var Columns = []Column{
	{"train/loss", "loss", "%.4f"},
	{"val/loss", "val_loss", "%.4f"},
	{"train/*/success", "success", "%.3f"},
	{"critic/score/mean", "score", "%.3f"},
	{"rollout/in_group_reward_std", "spread", "%.3f"},
	{"rollout/filter_kept_ratio", "kept", "%.2f"},
	{"actor/entropy", "entropy", "%.3f"},
	{"actor/ppo_kl", "kl", "%.2e"},
	{"actor/pg_loss", "loss", "%.4f"},
	{"actor/grad_norm", "grad", "%.3f"},
	{"critic/vf_loss", "vf_loss", "%.4f"},
	{"response_length", "tokens", "%.0f"},
	{"val-env/*/success", "val_success", "%.3f"},
	{"timing_s/step", "s", "%.1f"},
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

	mu       sync.Mutex
	out      io.Writer
	terminal bool
	colour   bool
	bar      *Bar
}

// NewConsole writes to out. On a terminal it draws progress bars, and colours unless NO_COLOR is set or TERM is dumb;
// elsewhere it writes plain lines without control codes.
func NewConsole(out io.Writer) *Console {
	c := &Console{Columns: Columns, out: out}
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

// Step prints the line of a step out of total.
func (c *Console) Step(step, total int, values map[string]any) {
	const dim, reset = "\x1b[2m", "\x1b[0m"
	paint := func(label string) string { return label }
	if c.colour {
		paint = func(label string) string { return dim + label + reset }
	}
	fmt.Fprintln(c, line(c.Columns, step, total, values, paint))
}

// Line is the plain text of a step's line, as for a log file.
func (c *Console) Line(step, total int, values map[string]any) string {
	return line(c.Columns, step, total, values, func(label string) string { return label })
}

func line(columns []Column, step, total int, values map[string]any, paint func(string) string) string {
	keys := sortedKeys(values)
	parts := []string{fmt.Sprintf("%s %*d/%d", paint("step"), len(fmt.Sprint(total)), step, total)}
	for _, column := range columns {
		for _, key := range keys {
			if matched, _ := path.Match(column.Key, key); !matched {
				continue
			}
			if text, ok := format(column.Format, values[key]); ok {
				parts = append(parts, paint(label(column, key))+" "+text)
			}
		}
	}
	return strings.Join(parts, "  ")
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
