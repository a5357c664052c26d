package figure

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
)

// scale is how the values of an axis are drawn: as they are, as multiples of a power of ten, or as their decimal
// logarithms. (gonum's own logarithmic scale leaves room for the labels of an axis in the wrong place.)
type scale struct {
	log    bool
	factor float64
	power  string // the unit's factor, for the axis label
}

// newScale chooses the scale of an axis over a range.
func newScale(a Axis, l limits) scale {
	if a.Log && l.low > 0 && l.high/l.low > 20 {
		return scale{log: true, factor: 1}
	}
	if a.Integer || a.Names != nil {
		return scale{factor: 1}
	}
	factor, power := Unit(math.Max(math.Abs(l.low), math.Abs(l.high)))
	return scale{factor: factor, power: power}
}

// Unit is a power of ten that makes values of a magnitude readable, and its name.
func Unit(largest float64) (factor float64, power string) {
	if largest == 0 || largest >= 0.02 && largest < 1e5 {
		return 1, ""
	}
	exponent := int(math.Floor(math.Log10(largest) + 1e-9))
	return math.Pow(10, float64(-exponent)), Typographic(fmt.Sprintf(" (× 1e%d)", exponent))
}

func (s scale) of(v float64) float64 {
	if s.log {
		return math.Log10(v)
	}
	return v * s.factor
}

// ticks places about five labels at 1, 2 or 5 times a power of ten.
type ticks struct{ integer bool }

// Ticks implements plot.Ticker.
func (t ticks) Ticks(low, high float64) []plot.Tick {
	step := niceStep((high - low) / 4.5)
	if t.integer {
		step = max(step, 1)
	}
	decimals := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	var out []plot.Tick
	for i := math.Ceil(low/step - 1e-9); i*step <= high+1e-9*step; i++ {
		out = append(out, plot.Tick{Value: i * step, Label: Typographic(strconv.FormatFloat(i*step, 'f', decimals,
			64))})
	}
	return out
}

// niceStep is the number of the form {1, 2, 5}·10^k nearest to raw on a logarithmic scale.
func niceStep(raw float64) float64 {
	decade := math.Pow(10, math.Floor(math.Log10(raw)))
	switch m := raw / decade; {
	case m < math.Sqrt(2):
		return decade
	case m < math.Sqrt(10):
		return 2 * decade
	case m < math.Sqrt(50):
		return 5 * decade
	}
	return 10 * decade
}

// logTicks is for an axis of decimal logarithms: it labels the decades, and 2 and 5 times them on a short range.
type logTicks struct{}

// Ticks implements plot.Ticker.
func (logTicks) Ticks(low, high float64) []plot.Tick {
	every := math.Max(1, math.Ceil((high-low)/5))
	var out []plot.Tick
	first := math.Floor(low)
	for k := first; k <= math.Ceil(high); k++ {
		for m := 1.0; m < 10; m++ {
			tick := plot.Tick{Value: k + math.Log10(m)}
			if tick.Value < low-1e-9 || tick.Value > high+1e-9 {
				continue
			}
			if m == 1 && math.Mod(k-first, every) == 0 || high-low < 1.7 && (m == 1 || m == 2 || m == 5) {
				tick.Label = Short(m*math.Pow(10, k), 1)
			}
			out = append(out, tick)
		}
	}
	return out
}

// Short writes v with a number of significant digits, without trailing zeros.
func Short(v float64, digits int) string {
	text := strconv.FormatFloat(v, 'g', digits, 64)
	if mantissa, exponent, ok := strings.Cut(text, "e"); ok {
		n, _ := strconv.Atoi(exponent) // FormatFloat writes a valid exponent
		if n >= 0 && n < 5 {
			return Typographic(strconv.FormatFloat(v, 'f', 0, 64))
		}
		return Typographic(mantissa + "e" + strconv.Itoa(n))
	}
	return Typographic(text)
}

// Typographic replaces the hyphen of a number by a minus sign.
func Typographic(number string) string {
	if strings.Trim(number, "-0.") == "" {
		number = strings.TrimPrefix(number, "-")
	}
	return strings.ReplaceAll(number, "-", "−")
}
