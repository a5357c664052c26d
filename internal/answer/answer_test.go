package answer

import (
	"strings"
	"testing"
	"time"
)

func TestLenientAccepts(t *testing.T) {
	for a, b := range map[string]string{
		`\frac{3}{4}`: "0.75", `\frac{2}{4}`: "1/2", "3.14": "3.140", "+5": "5", "5.": "5", "0.50": `\frac12`,
		"1.5/2":  `\frac{3}{4}`,
		"10,080": "10080", `\$1{,}000`: "1000", `11\,111`: "11111", "137 1/2": `137\frac{1}{2}`,
		`2\frac{1}{3}`:   `\frac{7}{3}`,
		`0.\overline{3}`: `\frac13`, `0.1\overline{6}`: `\frac{1}{6}`, "-3/4": `-\frac{3}{4}`, `\sqrt{4}`: "2",
		`\sqrt[3]{-8}`: "-2",
		`2^{10}`:       "1024", `2\cdot 3`: "6", "5!": "120", `\binom{5}{2}`: "10", `\cfrac{1}{2}`: `\frac{1}{2}`,
		"90^ \\circ": "90", "90°": "90",
		`\frac{\sqrt{3}}{3}`: `\frac{1}{\sqrt{3}}`, `3\sqrt{2}/2`: `\frac{3\sqrt{2}}{2}`, "-q+p": "p - q",
		"-5i+6":   "6-5i",
		`(x+1)^2`: `x^2+2x+1`, `\sin^2 x + \cos^2 x`: "1", `\ln e^2`: "2", `\log_2 8`: "3", `e^{i\pi}`: "-1",
		`x\;+\;1`: "x+1", "5 \\text{cm}": "5",
		`10\mathrm{ cm}`: "10", `\text{(C)}`: "(C)", "C": `\text{C}`, `\text{even}`: "Even", "Evelyn": `\text{Evelyn}`,
		`\infty`:  `+\infty`,
		`x\leq 3`: `x\le 3`, `3 \ge x`: `x \leq 3`, "2x+4=0": "x=-2", "y=2x+1": "2x - y + 1 = 0", "0<x<1": "1>x>0",
		`x \in [0,1)`:               `[0, 1)`,
		`(3,\infty)\cup(-\infty,2)`: `(-\infty, 2) \cup (3, \infty)`, `1+\sqrt{19}, 1-\sqrt{19}`: `1 \pm \sqrt{19}`,
		"1,2":     "2, 1",
		`\{1,2\}`: `\{2,1\}`, "(1/2, 0.25)": `\left(\frac12,\frac14\right)`, `\big(1,2\big)`: "(1,2)",
		`x=1 \text{ or } x=2`:                       "1, 2",
		`\begin{pmatrix} -1/3 \\ 2/3 \end{pmatrix}`: `\begin{pmatrix} -\frac{1}{3} \\ \frac{2}{3} \end{pmatrix}`,
		`$\frac{1}{2}$`:                             "1/2",
		`\(7\)`:                                     "7", "50%": `50\%`, `f(x) = 2x`: "2x", "2516_8": "2516_{8}",
		`π/2`:                 `\frac{\pi}{2}`,
		`\lfloor 2.5 \rfloor`: "2", "|-3|": "3",
		"100,200,300": "300,200,100", "1,000,000": "1000000", `864 \mbox{ inches}^2`: "864", `2 \text{ and } 3`: "2,3",
		`\frac{1}{x+1}`: `(1+x)^{-1}`, `\emptyset`: `\varnothing`, `x_1+x_{2}`: `x_2+x_1`,
	} {
		if _, equal := EqualLenient(a, b); !equal {
			t.Errorf("%q and %q are the same", a, b)
		}
		if _, equal := EqualLenient(b, a); !equal {
			t.Errorf("%q and %q are the same", b, a)
		}
	}
}

func TestLenientRefuses(t *testing.T) {
	for a, b := range map[string]string{
		"0.333": `\frac13`, "0.3333333333333333": `\frac13`, "3.14": `\pi`, "3.14159265358979": `\pi`,
		"1.4142135623730951": `\sqrt2`, "42": "43",
		"-7": "7", "10\\%": "0.1", "[0,1]": "[0,1)", "(1,2)": "(2,1)", "(1,3)": "1,3", `\frac{1}{2}`: "2", "x": "y",
		"q-p": "p-q", "abc": "acb",
		`5\text{cm}`: `5\text{m}`, "even": "odd", `\sqrt{x^2}`: "x", "x<3": "x>3", "x<4": "-x<-4", "x=1,x=2": "1",
		`\log x`:                              `\ln x`,
		`\begin{pmatrix} 1 & 2 \end{pmatrix}`: `\begin{pmatrix} 1 \\ 2 \end{pmatrix}`, "": "0", "1,2,2": "1,1,2",
		"(1,200)": "(1200)",
		"1200":    "(1,200)", `\{1\}`: "1", "2x+4": "x+2", "12:00": "12", `10^{-12}x`: `10^{-13}x`,
		"5x - 7y + 11z + 4 = 0": "x + y - z + 2 = 0",
		`\sin^{-1} x`:           `\frac{1}{\sin x}`, "1 2": "2", `\frac{1}{0}`: `\frac{2}{0}`, `0^0`: "1",
		"2516_8":  "2516_9",
		"2^{0.5}": "1.41421356237",
	} {
		if how, equal := EqualLenient(a, b); equal {
			t.Errorf("%q and %q are not the same, but count as %s", a, b, how)
		}
		if how, equal := EqualLenient(b, a); equal {
			t.Errorf("%q and %q are not the same, but count as %s", b, a, how)
		}
	}
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

func TestBoxed(t *testing.T) {
	for text, want := range map[string]struct {
		content string
		found   bool
	}{
		`so \boxed{3}`:                       {"3", true},
		`\boxed{1} and \boxed{\frac{1}{2}}.`: {`\frac{1}{2}`, true},
		`\boxed 7$ rest`:                     {"7", true},
		`\fbox{4}`:                           {"4", true},
		`\fbox{4} \boxed{5}`:                 {"5", true},
		`\boxed{1} \boxed{2`:                 {"", false}, // no way back to an earlier one
		`\boxed{}`:                           {"", true},
		"no box":                             {"", false},
	} {
		if content, found := Boxed(text); content != want.content || found != want.found {
			t.Errorf("%s: %q (%v), expected %q (%v)", text, content, found, want.content, want.found)
		}
	}
}
