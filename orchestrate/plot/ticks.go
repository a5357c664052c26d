package plot

import (
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
)

// ticks places about five labels at 1, 2 or 5 times a power of ten.
type ticks struct{ integer bool }

// Ticks implements plot.Ticker.
func (t ticks) Ticks(low, high float64) []plot.Tick {
	step := niceStep((high - low) / 4.5)
	if t.integer {
		step = max(step, 1)
	}
	var out []plot.Tick
	for i := math.Ceil(low/step - 1e-9); i*step <= high+1e-9*step; i++ {
		out = append(out, plot.Tick{Value: i * step, Label: tickLabel(i*step, step, math.Max(math.Abs(low), math.Abs(high)))})
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

// tickLabel writes v with as many decimals as the step needs, or with an exponent when the numbers would be long.
func tickLabel(v, step, largest float64) string {
	if largest >= 1e6 || step < 1e-3 {
		return short(v, 3)
	}
	decimals := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	return typographic(strconv.FormatFloat(v, 'f', decimals, 64))
}

// short writes v with a number of significant digits, without trailing zeros.
func short(v float64, digits int) string {
	text := strconv.FormatFloat(v, 'g', digits, 64)
	if mantissa, exponent, ok := strings.Cut(text, "e"); ok {
		n, _ := strconv.Atoi(exponent) // FormatFloat writes a valid exponent
		if n >= 0 && n < 5 {
			return typographic(strconv.FormatFloat(v, 'f', 0, 64))
		}
		return typographic(mantissa + "e" + strconv.Itoa(n))
	}
	return typographic(text)
}

// typographic replaces the hyphen by a minus sign.
func typographic(number string) string {
	if strings.Trim(number, "-0.") == "" {
		number = strings.TrimPrefix(number, "-")
	}
	return strings.ReplaceAll(number, "-", "−")
}

// logTicks is for an axis of decimal logarithms: it labels the decades, and 2 and 5 times them on a short range. (Data are drawn as
// their logarithms: gonum's LogScale leaves room for axis labels in the wrong place.)
type logTicks struct{}

// Ticks implements plot.Ticker.
func (logTicks) Ticks(low, high float64) []plot.Tick {
	every := math.Max(1, math.Ceil((high-low)/5))
	var out []plot.Tick
	labels := 0
	first := math.Floor(low)
	for k := first; k <= math.Ceil(high); k++ {
		for m := 1.0; m < 10; m++ {
			tick := plot.Tick{Value: k + math.Log10(m)}
			if tick.Value < low-1e-9 || tick.Value > high+1e-9 {
				continue
			}
			if m == 1 && math.Mod(k-first, every) == 0 || high-low < 1.7 && (m == 1 || m == 2 || m == 5) {
				tick.Label = short(m*math.Pow(10, k), 1)
				labels++
			}
			out = append(out, tick)
		}
	}
	if labels >= 2 {
		return out
	}
	out = ticks{}.Ticks(math.Pow(10, low), math.Pow(10, high))
	for i := range out {
		out[i].Value = math.Log10(out[i].Value)
	}
	return out
}

// constants are fixed positions with their labels.
type constants []string

// Ticks implements plot.Ticker.
func (c constants) Ticks(_, _ float64) []plot.Tick {
	out := make([]plot.Tick, len(c))
	for i, label := range c {
		out[i] = plot.Tick{Value: float64(i), Label: label}
	}
	return out
}
