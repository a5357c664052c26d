package quote

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

const hostile = "a\x1b[2J\r\n12:00 step 9 success 1.0\u202e\x9b\xff\x00é☃"

func TestNothingIsLeftThatDoesNotPrint(t *testing.T) {
	wrapped := fmt.Errorf("asked: %s: %w", hostile, io.ErrUnexpectedEOF)
	safe := Error(wrapped)
	for what, text := range map[string]string{"text": Text(hostile, 100), "end": End(hostile, 100),
		"lines": Lines(hostile), "error": safe.Error()} {
		bad := "\x1b\r\u202e\x9b\xff\x00"
		if what != "lines" {
			bad += "\n"
		}
		for _, b := range []byte(bad[:2]) {
			if strings.IndexByte(text, b) >= 0 {
				t.Errorf("%s: %q holds %q", what, text, b)
			}
		}
		if strings.ContainsAny(text, "\x00\u202e\r") || what != "lines" && strings.Contains(text, "\n") ||
			!strings.Contains(text, "é☃") ||
			!strings.Contains(text, `\xff`) {
			t.Errorf("%s: %q", what, text)
		}
	}
	if !errors.Is(safe, io.ErrUnexpectedEOF) {
		t.Error("the cause is hidden")
	}
	if plain := errors.New("all is well"); Error(plain) != plain {
		t.Error("an error that needs nothing was wrapped")
	}
}

func TestLongTexts(t *testing.T) {
	long := strings.Repeat("é", 5000)
	if got, want := Text(long, 7), `"ééé"… (9994 bytes more)`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := End(long, 7), `…"ééé"`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if n := len(Error(errors.New(long)).Error()); n > longestError+40 {
		t.Errorf("a message of %d bytes", n)
	}
	if got := Text("short", 5) + End("short", 5); got != `"short""short"` {
		t.Error(got)
	}
}
