package metrics

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

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

func TestColouredLineHasTheSameText(t *testing.T) {
	var out bytes.Buffer
	c := NewConsole(&out)
	c.colour = true
	values := map[string]any{"actor/entropy": 0.5}
	c.Step(1, 2, values)
	plain := strings.NewReplacer("\x1b[2m", "", "\x1b[0m", "").Replace(out.String())
	if plain == out.String() || plain != c.Line(1, 2, values)+"\n" {
		t.Errorf("coloured %q, plain %q", out.String(), c.Line(1, 2, values))
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
