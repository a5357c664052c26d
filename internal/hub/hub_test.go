package hub

import (
	"strings"
	"testing"
)

// A log gets a line when a file begins and one when it is complete, not one for every piece.
func TestProgressInLines(t *testing.T) {
	var text strings.Builder
	report := Lines(&text)
	for done := int64(0); done <= 3_000_000; done += 100_000 {
		report("a", done, 3_000_000)
	}
	report("b", 500_000, -1)
	report("b", 900_000, -1)
	if want := "a  0.0 of 3.0 MB\na  3.0 of 3.0 MB\nb  0.5 MB\n"; text.String() != want {
		t.Errorf("%q, want %q", text.String(), want)
	}
}
