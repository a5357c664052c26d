package answer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

func TestAnswers(t *testing.T) {
	datadriven.RunTest(t, "testdata/answers", func(t *testing.T, d *datadriven.TestData) string {
		if d.Cmd == "boxed" {
			content, found := Boxed(d.Input)
			if !found {
				return "none"
			}
			return fmt.Sprintf("%q", content)
		}
		var out strings.Builder
		for line := range strings.SplitSeq(d.Input, "\n") {
			how, equal := lenient(t, line)
			if !equal {
				how = "different"
			}
			fmt.Fprintf(&out, "%s: %s\n", how, line)
		}
		return out.String()
	})
}

func TestMarked(t *testing.T) {
	datadriven.RunTest(t, "testdata/marked", func(t *testing.T, d *datadriven.TestData) string {
		texts := strings.Split(d.Input, "\n")
		if d.Cmd == "text" {
			texts = []string{d.Input}
		}
		var out strings.Builder
		for _, text := range texts {
			a := Marked(text)
			if !a.Marked {
				out.WriteString("no mark\n")
				continue
			}
			fmt.Fprintf(&out, "%q", a.Text)
			if a.Unit != "" {
				fmt.Fprintf(&out, " of %s", a.Unit)
			}
			if a.Rest != "" {
				fmt.Fprintf(&out, ", then %s", a.Rest)
			}
			out.WriteString("\n")
		}
		return out.String()
	})
}

// A cell's answer is behind its mark, in its box, or all of it.
func TestGold(t *testing.T) {
	for cell, want := range map[string]string{
		"6*7=42\n#### 42": "42", `We get $x=\boxed{\frac{1}{2}}$.`: `\frac{1}{2}`, " 10,080\r\n": "10,080",
		"\ufeff42\u200b": "42", "work\n####": "", "": "", `\boxed{1} #### 2`: "2",
	} {
		if got := Gold(cell).Text; got != want {
			t.Errorf("%q: %q, want %q", cell, got, want)
		}
	}
}

// What package algebra says of its pairs stands here, too.
func TestAlgebraHasTheLastWord(t *testing.T) {
	pairs := 0
	datadriven.RunTest(t, "algebra/testdata/equal", func(t *testing.T, d *datadriven.TestData) string {
		for line := range strings.SplitSeq(d.Input, "\n") {
			if _, equal := lenient(t, line); equal != !strings.Contains(d.Expected, "different: "+line+"\n") {
				t.Errorf("%s: %v", line, equal)
			}
			pairs++
		}
		return d.Expected
	})
	if pairs < 100 {
		t.Errorf("only %d pairs were read", pairs)
	}
}

// lenient compares the two of a line, A ≟ B, in both directions.
func lenient(t *testing.T, line string) (how string, equal bool) {
	t.Helper()
	a, b, found := strings.Cut(line, "≟")
	how, equal = EqualLenient(a, b)
	if back, same := EqualLenient(b, a); !found || same != equal || back != how {
		t.Errorf("%s is %s (%v), the other way round %s (%v)", line, how, equal, back, same)
	}
	return how, equal
}

// Hostile answers cost no more than honest ones.
func TestLenientIsBounded(t *testing.T) {
	deep := strings.Repeat("(", 100_000)
	for _, s := range []string{deep, strings.Repeat("{", 100_000), `9^{9^{9^{9^9}}}`, "100000!!!",
		strings.Repeat("9", 10_000) + "^{999}",
		strings.Repeat(`1\pm1,`, 120) + "1", strings.Repeat(`\sqrt`, 5000), `2^{-10^{18}}`,
		"1" + strings.Repeat(",000", 5000),
		strings.Repeat(`x^{`, 39) + strings.Repeat("}", 39), `\binom{1000000000}{500000000}`,
		strings.Repeat(`\frac1`, 300)} {
		begin := time.Now()
		EqualLenient(s, "1+"+s)
		EqualLenient(s, "1")
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("%.40q takes %v", s, took)
		}
	}
}
