package metrics

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var control = regexp.MustCompile(`^\x1b\[(\d*)([A-Za-z])`)

// screen is what a terminal shows of a stream of text, history included; it fails on lines wider than the terminal.
func screen(t *testing.T, stream string, width int) []string {
	t.Helper()
	lines, at := []string{""}, 0
	for stream != "" {
		if match := control.FindStringSubmatch(stream); match != nil {
			stream = stream[len(match[0]):]
			switch n, _ := strconv.Atoi(match[1]); match[2] {
			case "A":
				if at -= n; at < 0 {
					t.Fatal("above the first line")
				}
			case "J":
				lines = append(lines[:at], "")
			}
			continue
		}
		r, size := utf8.DecodeRuneInString(stream)
		stream = stream[size:]
		switch r {
		case '\r':
		case '\n':
			if at++; at == len(lines) {
				lines = append(lines, "")
			}
		default:
			if lines[at] += string(r); utf8.RuneCountInString(lines[at]) > width {
				t.Fatalf("wider than %d: %q", width, lines[at])
			}
		}
	}
	return lines
}

// On a terminal of 80 columns the head stays above the latest lines, whatever is written, every line remains in the
// order in which it came, and a message stays in one piece, broken between its words.
func TestHeadStaysAboveTheLatestLines(t *testing.T) {
	t.Setenv("COLUMNS", "80")
	var out bytes.Buffer
	c := NewConsole(&out)
	c.terminal, c.head = true, &head{}
	fmt.Fprintln(c, "before the first step")
	const steps = 60
	for step := 1; step <= steps; step++ {
		c.Step(step, steps, map[string]any{"train/a/success": float64(step) / steps, "train/b/success": 0.0,
			"rollout/in_group_reward_std": 0.25, "timing_s/step": 2.0})
		if step%7 == 0 {
			fmt.Fprintf(c, "step %d says %s\n", step, strings.Repeat("much ", 20))
		}
		lines := screen(t, out.String(), 80)
		above := 0
		for i, line := range lines {
			if strings.HasPrefix(line, fmt.Sprintf("step %d/%d", step, steps)) {
				above = i
			}
		}
		if below := len(lines) - above; above == 0 || below > headLines+3 || step > headLines && below < headLines {
			t.Fatalf("step %d: the head is in line %d of %d:\n%s", step, above, len(lines), strings.Join(lines, "\n"))
		}
		if !strings.HasPrefix(lines[above+1], "success ") || !strings.Contains(lines[above+1], "  reward_std 0.250 ▁") {
			t.Fatalf("step %d: %q", step, lines[above+1])
		}
		whole := regexp.MustCompile(`step \d+ says( much){13,14}\n(much ?){6,7}\n`)
		if n := len(whole.FindAllString(strings.Join(lines, "\n"), -1)); n != step/7 {
			t.Fatalf("step %d: %d of %d messages are whole:\n%s", step, n, step/7, strings.Join(lines, "\n"))
		}
	}
	text := strings.Join(screen(t, out.String(), 80), "\n")
	last := -1
	for step := 1; step <= steps; step++ {
		at := strings.Index(text, fmt.Sprintf("\n%2d/%d ", step, steps))
		if at <= last {
			t.Fatalf("step %d is missing or out of order:\n%s", step, text)
		}
		last = at
	}
	if strings.Count(text, " left") > 0 || strings.Count(text, "step 60/60") != 1 || !strings.HasPrefix(text, "before") {
		t.Errorf("the end:\n%s", text)
	}
	// Elsewhere there are plain lines.
	var plain bytes.Buffer
	NewConsole(&plain).Step(1, 2, map[string]any{"train/a/success": 0.5})
	if plain.String() != "step 1/2  success[a] 0.500\n" {
		t.Errorf("plain: %q", plain.String())
	}
}

func TestTimeLeft(t *testing.T) {
	h, begun := &head{}, time.Unix(0, 0)
	h.note(begun, 80, 11, 20, map[string]any{"timing_s/step": 10.0, "train/loss": 1.0})
	if !strings.HasPrefix(h.top[0], "step 11/20  ") || !strings.HasSuffix(h.top[0], "  about 1 min 30 s left") {
		t.Errorf("head %q", h.top[0])
	}
	h.note(begun.Add(40*time.Second), 80, 13, 20, map[string]any{"train/loss": 2.0}) // 20 s with what is between steps
	if !strings.HasSuffix(h.top[0], "about 2 min 20 s left") || len(h.top[0]) != 80 ||
		!strings.HasPrefix(h.top[1], "loss 2.000 ▁█") {
		t.Errorf("head %q", h.top)
	}
	for want, d := range map[string]time.Duration{"59 s": 59 * time.Second, "2 h 5 min": 125 * time.Minute} {
		if got := short(d); got != want {
			t.Errorf("%v: %q", d, got)
		}
	}
}

func TestSparkline(t *testing.T) {
	for _, c := range []struct {
		values []float64
		width  int
		want   string
	}{{nil, 5, ""}, {[]float64{3, 3}, 5, "▁▁"}, {[]float64{0, 7, 14}, 5, "▁▅█"}, {[]float64{0, 2, 4, 6}, 2, "▁█"},
		{[]float64{1}, -4, ""}} {
		if got := sparkline(c.values, c.width); got != c.want {
			t.Errorf("%v: %q, want %q", c.values, got, c.want)
		}
	}
}
