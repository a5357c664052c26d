package causes

import (
	"math"
	"math/rand/v2"

	"gyre/internal/statistics"
)

const (
	// deals is how often values are dealt to the steps at random: the least p-value is one in deals + 1.
	deals = 4999
	// enough is how many deals that reach what was found end the dealing.
	enough = 20
	// mostBins and mostPerBin bound the work: longer histories are tested in bins of steps, larger steps in means.
	mostBins, mostPerBin = 40, 24
	// before and after are how many bins stand at least on either side of a change. One step is no change that lasts: its
	// groups are of one policy, and not independent of one another.
	before, after = 1, 2
)

// Shift is where a series changes most in one direction, and how likely such a change is by chance.
type Shift struct {
	At            int     // index of the first step after the change
	Before, After float64 // means
	P             float64 // 1 where nothing can be tested
}

// shift looks for the change of a series in the direction of sign (+1: up) that is the clearest in excess of margin:
// the largest over j < k of (mean of the steps from k on, less that of the steps j to k, less margin), divided by its
// standard error for a common variance. Where it is larger than in all but a share p of random deals of the values to
// the steps, the change has the p-value p. Both ends of the time before are free, so that a fall after a rise is seen.
func shift(s Series, sign, margin float64) Shift {
	b := bin(s, sign)
	none := Shift{P: 1, Before: math.NaN(), After: math.NaN()}
	if len(b.first) < before+after {
		return none
	}
	found, j, k := b.clearest(margin)
	if !(found > 0) {
		return none
	}
	out := Shift{At: b.first[k], P: chance(func(random *rand.Rand) bool {
		random.Shuffle(len(b.values), func(i, j int) { b.values[i], b.values[j] = b.values[j], b.values[i] })
		again, _, _ := b.clearest(margin)
		return again >= found
	})}
	last := len(s)
	if j < len(b.first) {
		out.Before = flatMean(s[b.first[j]:b.first[k]])
	}
	out.After = flatMean(s[b.first[k]:last])
	return out
}

// chance is the p-value of what was found, where deal reports whether a random deal reaches it. Dealing ends once
// enough have: p is then enough over their number, which is exact, too (Besag and Clifford, 1991).
func chance(deal func(*rand.Rand) bool) float64 {
	random := rand.New(rand.NewPCG(1, 2)) // the same history has the same p-value
	reached := 0
	for i := range deals {
		if deal(random) {
			reached++
		}
		if reached == enough {
			return enough / float64(i+1)
		}
	}
	return float64(reached+1) / float64(deals+1)
}

func flatMean(s Series) float64 {
	var all []float64
	for _, values := range s {
		all = append(all, values...)
	}
	return statistics.Mean(all)
}

// bins are values in the order of steps.
type bins struct {
	values []float64
	ends   []int // of each bin's values
	first  []int // step index with which each bin begins
	sums   []float64
}

func bin(s Series, sign float64) *bins {
	known := 0
	for _, values := range s {
		if len(values) > 0 {
			known++
		}
	}
	b, width, filled := &bins{}, (known+mostBins-1)/mostBins, 0
	for i, values := range s {
		if len(values) == 0 {
			continue
		}
		if filled%max(width, 1) == 0 {
			b.first, b.ends = append(b.first, i), append(b.ends, len(b.values))
		}
		filled++
		parts := min(len(values), max(mostPerBin/max(width, 1), 1))
		for p := range parts {
			b.values = append(b.values, sign*statistics.Mean(values[p*len(values)/parts:(p+1)*len(values)/parts]))
		}
		b.ends[len(b.ends)-1] = len(b.values)
	}
	b.sums = make([]float64, len(b.ends)+1)
	return b
}

// clearest is the largest standardised rise in excess of margin, from bins j to k to those from k on.
func (b *bins) clearest(margin float64) (best float64, j, k int) {
	at, n := 0, len(b.ends)
	for i, end := range b.ends {
		sum := b.sums[i]
		for ; at < end; at++ {
			sum += b.values[at]
		}
		b.sums[i+1] = sum
	}
	total := float64(len(b.values))
	for q := before; q <= n-after; q++ {
		from := b.ends[q-1]
		high := (b.sums[n] - b.sums[q]) / (total - float64(from))
		for p := 0; p <= q-before; p++ {
			begin := 0
			if p > 0 {
				begin = b.ends[p-1]
			}
			m := float64(from - begin)
			rise := high - (b.sums[q]-b.sums[p])/m - margin
			if z := rise / math.Sqrt(1/m+1/(total-float64(from))); rise > 0 && z > best {
				best, j, k = z, p, q
			}
		}
	}
	return best, j, k
}

// majorityOfSteps is the p-value of the hypothesis that no more than half of the steps are such: a sign test.
func majorityOfSteps(such, of int) float64 {
	p := 0.0
	for i := such; i <= of; i++ {
		p += math.Exp(logChoose(of, i) - float64(of)*math.Ln2)
	}
	return math.Min(p, 1)
}

func logChoose(n, k int) float64 {
	a, _ := math.Lgamma(float64(n + 1))
	b, _ := math.Lgamma(float64(k + 1))
	c, _ := math.Lgamma(float64(n - k + 1))
	return a - b - c
}
