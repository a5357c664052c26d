package arithmetic

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"
)

// Python's own arithmetic agrees on well-formed, broken and undefined expressions.
func TestAgreesWithPython(t *testing.T) {
	file, err := os.Open("testdata/python.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	good, bad := 0, 0
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var text string
		var want *float64
		if err := json.Unmarshal(lines.Bytes(), &[]any{&text, &want}); err != nil {
			t.Fatal(err)
		}
		got, err := Grammar{}.Evaluate(text)
		switch {
		case want == nil:
			bad++
			if err == nil {
				t.Errorf("%q is %g, Python refuses it", text, got)
			}
		default:
			good++
			if err != nil || math.Abs(got-*want) > 1e-9*max(1, math.Abs(*want)) {
				t.Errorf("%q is %g, %v; Python says %g", text, got, err, *want)
			}
		}
	}
	if good < 800 || bad < 50 {
		t.Errorf("%d expressions and %d broken ones: the fixture shows too little", good, bad)
	}
}

func TestDecimalsAndPowers(t *testing.T) {
	all := Grammar{Decimals: true, Powers: true}
	for text, want := range map[string]float64{
		"2 ** 10": 1024, "2^3^2": 512, "-2 ** 2": -4, "(-2) ** 2": 4, "2 ** -1": 0.5, "1.5 * 4": 6, ".5 + 2.": 2.5,
		"2 * (1 + 1) ^ 3": 16,
		"2 ÷ 4 × 6 − 1":   2,
	} {
		if got, err := all.Evaluate(text); err != nil || math.Abs(got-want) > 1e-12 {
			t.Errorf("%s is %g, %v; want %g", text, got, err, want)
		}
	}
	for _, text := range []string{"1.2.3", ".", "2 **", "", "()", "1 +", "a", strings.Repeat("(", 2000)} {
		if got, err := all.Evaluate(text); err == nil {
			t.Errorf("%.20s is %g, want an error", text, got)
		}
	}
	for _, text := range []string{"2.5", "2 ** 3", "2 ^ 3"} {
		if got, err := (Grammar{}).Evaluate(text); err == nil {
			t.Errorf("without decimals and powers %s is %g", text, got)
		}
	}
}
