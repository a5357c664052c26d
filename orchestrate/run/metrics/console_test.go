package metrics

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// The share of replies that were cut off is shown where it is not 0.
func TestCutRepliesAreShown(t *testing.T) {
	for share, want := range map[float64]string{0: "step 1/2", 0.75: "step 1/2  cut 0.75"} {
		if got := StepText(1, 2, map[string]any{"response_length/cut_ratio": share}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestStepLine(t *testing.T) {
	var out bytes.Buffer
	c := NewConsole(&out)
	c.Step(7, 101, map[string]any{
		"train/sokoban/success": 0.25, "train/bandit/success": 1.0, "train/bandit/non-zero/success": 1.0,
		"actor/entropy": math.NaN(), "timing_s/step": 12.34, "unlisted": 3.0,
	})
	want := "step   7/101  success[bandit] 1.000  success[sokoban] 0.250  entropy NaN  s 12.3\n"
	if out.String() != want {
		t.Errorf("got  %qwant %q", out.String(), want)
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("control codes outside a terminal")
	}
}

// Validation success, which people look for, is the first column from the step on that has it, wherever other columns
// were before.
func TestValidationSuccessIsTheFirstColumn(t *testing.T) {
	var out bytes.Buffer
	c := NewConsole(&out)
	c.terminal = true
	values := map[string]any{}
	for _, column := range columns {
		values[strings.ReplaceAll(column.key, "*", "sokoban")] = 0.25
	}
	delete(values, "val-env/sokoban/episodic_return")
	c.Step(0, 9, map[string]any{"val-env/sokoban/success": 0.5})
	delete(values, "val-env/sokoban/success")
	c.Step(1, 9, values)
	values["val-env/sokoban/success"] = 0.75
	c.Step(2, 9, values)
	lines := strings.Split(out.String(), "\n")
	for i, want := range []string{"step  val_success", " 0/9        0.500", "step  val_success  success",
		" 1/9               ", " 2/9        0.750"} {
		if !strings.HasPrefix(lines[i], want) || len(lines[i]) > 80 {
			t.Errorf("line %d is %q, want %q at its beginning", i, lines[i], want)
		}
	}
}

// On a terminal no line is longer than the terminal, columns stay in their place, and their names come again when they
// change.
func TestRowsFitTheTerminal(t *testing.T) {
	var out bytes.Buffer
	c := NewConsole(&out)
	c.terminal, c.colour = true, true
	values := map[string]any{}
	for _, column := range columns {
		values[strings.ReplaceAll(column.key, "*", "sokoban")] = -12345.6789
	}
	validation := values["val-env/sokoban/success"]
	for step := range 30 {
		delete(values, "val-env/sokoban/success")
		if step == 4 {
			values["val-env/sokoban/success"] = validation
		}
		c.Step(step, 30, values)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	headers := 0
	for _, line := range lines {
		plain := strings.NewReplacer("\x1b[2m", "", "\x1b[0m", "").Replace(line)
		if len(plain) > 80 {
			t.Errorf("%d characters: %q", len(plain), plain)
		}
		if plain != line {
			headers++
		}
	}
	if headers != 3 || len(lines) != 33 {
		t.Errorf("%d headers in %d lines, want 3 (the first, the one with a new column, and 20 rows later) in 33",
			headers, len(lines))
	}
	if full := StepText(1, 30, values); len(full) < 250 || strings.Contains(full, "\x1b") {
		t.Errorf("the whole line has %d characters: %q", len(full), full)
	}
}

func TestProgressOutsideATerminalIsPlainAndRare(t *testing.T) {
	var out bytes.Buffer
	c := NewConsole(&out)
	bar := c.Bar("rollout", 100)
	for i := range 50 {
		bar.Set(i)
	}
	if out.Len() > 0 {
		t.Errorf("wrote %q at once", out.String())
	}
	bar.shown = bar.shown.Add(-time.Hour)
	bar.begun = bar.begun.Add(-time.Minute)
	bar.Set(50)
	bar.Close()
	bar.Set(51)
	if got, want := out.String(), "rollout 50/100, 1m0s left\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestBarGivesWayToMessagesOnATerminal(t *testing.T) {
	var out bytes.Buffer
	c := NewConsole(&out)
	c.terminal = true
	bar := c.Bar("rollout", 10)
	bar.Set(3)
	before := out.Len()
	fmt.Fprintln(c, "saved")
	if message := out.String()[before:]; !strings.HasPrefix(message, "\r") || !strings.HasSuffix(message, "saved\n") {
		t.Errorf("got %q, want the bar cleared before the message", message)
	}
	bar.Close()
}
