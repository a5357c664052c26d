package filter

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"gyre/orchestrate/config"
)

// oracle is RAGEN's selection as its authors describe it, for scores without ties and away from every bound: in
// rational numbers where it adds, by sets instead of ranks where it counts.
func oracle(scores []float64, o config.Filter) []int {
	var left []int
	for g, s := range scores {
		if o.IncludeZero || math.Abs(s) > 1e-10 {
			left = append(left, g)
		}
	}
	if len(left) == 0 {
		return nil
	}
	better := func(a, b int) bool {
		return o.Type == "largest" && scores[a] > scores[b] || o.Type == "smallest" && scores[a] < scores[b]
	}
	best := func(k int) (out []int) {
		for _, g := range left {
			ahead := 0
			for _, h := range left {
				if better(h, g) {
					ahead++
				}
			}
			if ahead < k {
				out = append(out, g)
			}
		}
		return out
	}
	k := 0
	switch o.Strategy {
	case "top_k":
		k = max(1, int(o.Value*float64(len(scores))))
	case "top_k_abs":
		k = max(1, int(o.Value))
	case "min_p":
		low, high := scores[left[0]], scores[left[0]]
		for _, g := range left {
			low, high = min(low, scores[g]), max(high, scores[g])
		}
		var out []int
		for _, g := range left {
			if o.Type == "largest" && scores[g] >= o.Value*high || o.Type == "smallest" && scores[g]*o.Value <= low {
				out = append(out, g)
			}
		}
		return out
	case "top_p":
		if o.Value >= 1 {
			return left
		}
		sorted := slices.Clone(left)
		sort.Slice(sorted, func(i, j int) bool { return better(sorted[i], sorted[j]) })
		weight := func(g int) *big.Rat {
			v := scores[g]
			if o.ProbMode == "softmax" && o.Type == "smallest" {
				v = -v
			}
			if o.ProbMode == "softmax" {
				v = math.Exp(v)
			}
			return new(big.Rat).SetFloat64(v)
		}
		threshold, sum := new(big.Rat), new(big.Rat)
		for _, g := range sorted {
			threshold.Add(threshold, weight(g))
		}
		threshold.Mul(threshold, new(big.Rat).SetFloat64(o.Value))
		if o.ProbMode == "linear" {
			threshold.Sub(threshold, new(big.Rat).SetFloat64(o.SelectionEps))
		}
		for _, g := range sorted {
			if sum.Cmp(threshold) >= 0 || o.ProbMode == "linear" && scores[g] <= 0 {
				break
			}
			sum.Add(sum, weight(g))
			k++
		}
		if sum.Cmp(threshold) < 0 {
			return nil
		}
	}
	return best(k)
}

func TestSelectionEqualsTheDescription(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 11))
	for range 20000 {
		n := 1 + random.IntN(9)
		scores := make([]float64, n)
		for i := range scores {
			scores[i] = random.ExpFloat64() * 3
			switch random.IntN(6) {
			case 0:
				scores[i] = 0
			case 1:
				scores[i] *= 1e-3
			}
		}
		o := config.Filter{Strategy: []string{"top_p", "top_k", "top_k_abs", "min_p"}[random.IntN(4)],
			Value:    random.Float64(),
			ProbMode: []string{"linear", "softmax"}[random.IntN(2)],
			Type:     []string{"largest", "smallest"}[random.IntN(2)],
			Metric:   "reward", IncludeZero: random.IntN(2) == 0, SelectionEps: []float64{0.01, 0.5, 0}[random.IntN(3)]}
		if o.Strategy == "top_k_abs" || random.IntN(8) == 0 {
			o.Value = 4 * random.Float64()
		}
		if o.IncludeZero { // ties are settled by another test
			seen := map[float64]bool{}
			scores = slices.DeleteFunc(scores, func(s float64) bool {
				again := seen[s]
				seen[s] = true
				return again
			})
		}
		if got, want := Apply(exactly(scores...), o).Kept, oracle(scores, o); !slices.Equal(got, want) {
			t.Fatalf("%+v of %v: kept %v, the description keeps %v", o, scores, got, want)
		}
	}
}

// exactly makes groups of one member whose mean reward is the score, without rounding.
func exactly(scores ...float64) [][]Member {
	groups := make([][]Member, len(scores))
	for g, s := range scores {
		groups[g] = []Member{{Score: s}}
	}
	return groups
}

func members(scores ...float64) []Member {
	out := make([]Member, len(scores))
	for i, s := range scores {
		out[i].Score = s
	}
	return out
}

// Scores that are equal have no deviation, and deviations that are equal are ties, however their decimal fractions
// round.
func TestRoundingDecidesNothing(t *testing.T) {
	o := options("top_k_abs", 1, true)
	o.Metric = "reward_variance"
	if s := Apply([][]Member{members(0, 0, 0), members(.1, .1, .1)}, o); !slices.Equal(s.Kept, []int{0}) ||
		s.Std[1] != 0 {
		t.Errorf("of two groups without a deviation, %v was kept; deviations %v", s.Kept, s.Std)
	}
	shifted := [][]Member{members(1.1, 1.2), members(.1, .2), members(-5.6, -5.5), members(.2, .1)}
	for range len(shifted) {
		if s := Apply(shifted, o); !slices.Equal(s.Kept, []int{0}) {
			t.Errorf("of equal deviations %v, group %v was kept, want the first", s.Std, s.Kept)
		}
		shifted = append(shifted[1:], shifted[0])
	}
	if s := Apply([][]Member{members(-5.6, -4.6, -3.6)}, o); s.Std[0] != 1 {
		t.Errorf("the deviation of -5.6, -4.6, -3.6 is %.17g, want 1", s.Std[0])
	}
	o.IncludeZero = false
	if s := Apply([][]Member{members(.1, .1, .1), members(1, 2)}, o); !slices.Equal(s.Kept, []int{1}) {
		t.Errorf("kept %v, want only the group with a deviation", s.Kept)
	}
	o.IncludeZero = true
	for _, o.Metric = range []string{"reward", "reward_sum"} { // sums of 2.4, 0 and -2.4, however they are added
		for _, o.Type = range []string{"largest", "smallest"} {
			for _, tied := range [][][]Member{
				{members(.2, .4, .8, 1), members(.4, .6, .5, .9), members(.9, .5, .6, .4), members(.6, .6, .6, .6)},
				{members(.1, .2, -.3), members(0, 0, 0), members(-.3, .1, .2), members(.7, -.4, -.3)},
				{members(-.2, -.4, -.8, -1), members(-.4, -.6, -.5, -.9), members(-.6, -.6, -.6, -.6)},
			} {
				for range len(tied) {
					if s := Apply(tied, o); !slices.Equal(s.Kept, []int{0}) {
						t.Errorf("%s, %s: of equal sums of %v, group %v was kept, want the first", o.Metric, o.Type,
							tied, s.Kept)
					}
					tied = append(tied[1:], tied[0])
				}
			}
		}
	}
}

func TestExactShares(t *testing.T) {
	for i := range 39 * 40 {
		n, score := 2+i/40, []float64{.7, .7e6}[i%2]
		if k := 1 + i%40; k < n {
			for _, mode := range []string{"softmax", "linear"} {
				for _, direction := range []string{"largest", "smallest"} {
					o := options("top_p", float64(k)/float64(n), true)
					o.ProbMode, o.Type, o.SelectionEps = mode, direction, 0
					if got := Apply(exactly(slices.Repeat([]float64{score}, n)...), o).Kept; len(got) != k {
						t.Errorf("%s, %s: a share of %d/%d of equal scores keeps %d", mode, direction, k, n, len(got))
					}
				}
			}
		}
	}
}

// The best score passes whatever it is; bounds are inclusive.
func TestMinPBounds(t *testing.T) {
	for _, c := range []struct {
		direction string
		value     float64
		scores    []float64
		want      []int
	}{
		{"smallest", 1, []float64{5, 2, 3, 2}, []int{1, 3}},
		{"smallest", 1, []float64{1e6, 2e6}, []int{0}},
		{"smallest", .5, []float64{3, 6, 6.001, 100}, []int{0, 1}},
		{"smallest", 2, []float64{3, 4}, nil},
		{"smallest", 0, []float64{3, 1e9}, []int{0, 1}},
		{"smallest", .5, []float64{0, 1e-9, 1e-11}, []int{0, 2}},
		{"smallest", .5, []float64{-2, -1}, nil}, // within half of -2 would be below -4
		{"largest", 1, []float64{5, 2, 5}, []int{0, 2}},
		{"largest", 1, []float64{-5, -2}, []int{1}},
		{"largest", .5, []float64{6, 3, 2.999}, []int{0, 1}},
		{"largest", .5, []float64{6, 3 - 5e-11}, []int{0, 1}},
		{"largest", .5, []float64{6, 3 - 2e-10}, []int{0}},
		{"smallest", .5, []float64{0, 1e-10}, []int{0, 1}},
		{"largest", .5, []float64{0, -1e-10}, []int{0, 1}},
		{"largest", 2, []float64{3, 4}, nil},
		{"largest", .5, []float64{-2, -3}, nil},
	} {
		o := options("min_p", c.value, true)
		o.Type = c.direction
		if got := Apply(exactly(c.scores...), o).Kept; !slices.Equal(got, c.want) {
			t.Errorf("min_p %s %g of %v: kept %v, want %v", c.direction, c.value, c.scores, got, c.want)
		}
	}
}

// A deviation counts as zero up to 1e-10, on either side of 0; the count is over all groups.
func TestZeroes(t *testing.T) {
	s := Apply(exactly(1e-10, -1e-10, 1.1e-10, 0, -3), options("top_p", 1, false))
	if !slices.Equal(s.Kept, []int{2, 4}) || s.Metrics.Zero != 3 {
		t.Errorf("kept %v of %v zeroes", s.Kept, s.Metrics.Zero)
	}
}

// Twelve digits are kept of large and of small deviations alike.
func TestDigitsOfADeviation(t *testing.T) {
	for exponent := -12; exponent <= 12; exponent++ {
		unit := math.Pow10(exponent)
		if got, want := significant(1.23456789012345*unit), 1.23456789012*unit; math.Abs(got-want) > 1e-15*want {
			t.Errorf("1.23456789012345e%d is rounded to %.17g", exponent, got)
		}
		if got := significant(-1.999999999999999 * unit); math.Abs(got+2*unit) > 1e-15*unit {
			t.Errorf("-1.999999999999999e%d is rounded to %.17g", exponent, got)
		}
	}
	if v := significant(math.Inf(1)); !math.IsInf(v, 1) {
		t.Errorf("infinity became %v", v)
	}
}
