package advantage

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func bits(mask string) []bool {
	out := make([]bool, len(mask))
	for i, c := range mask {
		out[i] = c == '1'
	}
	return out
}

func near(t *testing.T, what string, got, want []float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
	for i := range want {
		if !(math.Abs(got[i]-want[i]) <= 1e-6) {
			t.Errorf("%s[%d] = %.7f, want %.7f", what, i, got[i], want[i])
		}
	}
}

// twoRows is a batch with observation tokens in the middle and at the start.
func twoRows() []Trajectory {
	return []Trajectory{
		{Mask: bits("11011"), Rewards: []float64{0, 0, 0, 0, 10.9}, Values: []float64{.5, .4, 0, .2, .1}},
		{Mask: bits("01101"), Rewards: []float64{0, 0, 0, 0, -1.1}, Values: []float64{0, .1, .2, 0, .4}},
	}
}

func TestGAE(t *testing.T) {
	for _, c := range []struct {
		gamma, lambda          float64
		raw, returns, whitened [2][]float64 // whitened: of sampled tokens
	}{
		{1, 1,
			[2][]float64{{10.4, 10.5, 10.7, 10.7, 10.8}, {-1.2, -1.2, -1.3, -1.5, -1.5}},
			[2][]float64{{10.9, 10.9, 10.7, 10.9, 10.9}, {-1.2, -1.1, -1.1, -1.5, -1.1}},
			[2][]float64{{.770198, .785870, 0, .817216, .832888}, {0, -1.047827, -1.063500, 0, -1.094845}}},
		{.9, .8,
			[2][]float64{{3.675654, 5.29952, 7.666, 7.666, 10.8}, {-.5824, -.5824, -.92, -1.5, -1.5}},
			[2][]float64{{4.175654, 5.69952, 7.666, 7.866, 10.9}, {-.5824, -.4824, -.72, -1.5, -1.1}},
			[2][]float64{{.038858, .381052, 0, .879734, 1.540154}, {0, -.858431, -.929573, 0, -1.051795}}},
	} {
		rows := twoRows()
		for i, row := range rows {
			advantages, returns := discounted(row, c.gamma, c.lambda)
			near(t, "advantages", advantages, c.raw[i])
			near(t, "returns", returns, c.returns[i])
		}
		e := Compute(rows, Options{Advantage: "gae", Gamma: c.gamma, Lambda: c.lambda}, 1)
		for i := range rows {
			near(t, "whitened", e.Advantages[i], c.whitened[i])
			near(t, "returns", e.Returns[i], c.returns[i])
		}
	}
}

// Observation tokens take no part: leaving them out of the row changes nothing.
func TestGAEIgnoresObservations(t *testing.T) {
	full := twoRows()[0]
	full.Values[2], full.Rewards[2] = 77, 88
	packed := Trajectory{Mask: bits("1111"), Rewards: []float64{0, 0, 0, 10.9}, Values: []float64{.5, .4, .2, .1}}
	a, r := discounted(full, .9, .8)
	b, s := discounted(packed, .9, .8)
	near(t, "advantages", []float64{a[0], a[1], a[3], a[4]}, b)
	near(t, "returns", []float64{r[0], r[1], r[3], r[4]}, s)
}

func TestBiLevelGAE(t *testing.T) {
	row := Trajectory{Mask: bits("1111111111"), Rewards: make([]float64, 10), TurnEnds: []int{4, 9}}
	row.Rewards[4], row.Rewards[9] = 1, 1
	for i := range 10 {
		row.Values = append(row.Values, float64(i+1)/10)
	}
	advantages, returns := byTurns(row, Options{Gamma: 1, Lambda: 1, HighLevelGamma: .95})
	near(t, "advantages", advantages, []float64{1.85, 1.75, 1.65, 1.55, 1.45, .4, .3, .2, .1, 0})
	near(t, "returns", returns, []float64{1.95, 1.95, 1.95, 1.95, 1.95, 1, 1, 1, 1, 1})
	e := Compute([]Trajectory{row}, Options{Advantage: "bi_level_gae", Gamma: 1, Lambda: 1, HighLevelGamma: .95},
		1)
	near(t, "whitened", []float64{e.Advantages[0][0], e.Advantages[0][4]}, []float64{1.187998, .674269})

	// A turn that earns 0 still ends: its tokens see the discounted value of the next turn, not its reward directly.
	row.Rewards[4] = 0
	_, returns = byTurns(row, Options{Gamma: 1, Lambda: 1, HighLevelGamma: .95})
	near(t, "returns of the unrewarded turn", returns[:5], []float64{.95, .95, .95, .95, .95})

	// Observations in between change nothing, and tokens after the last turn end earn nothing.
	spaced := Trajectory{Mask: bits("0110110"), Rewards: []float64{0, 0, 1, 0, 0, 2, 0},
		Values:   []float64{9, .1, .2, 9, .3, .4, 9},
		TurnEnds: []int{2, 5}}
	tight := Trajectory{Mask: bits("11111"), Rewards: []float64{0, 1, 0, 2, 0}, Values: []float64{.1, .2, .3, .4, .5},
		TurnEnds: []int{1, 3}}
	a, _ := byTurns(spaced, Options{Gamma: .9, Lambda: .8, HighLevelGamma: .95})
	b, _ := byTurns(tight, Options{Gamma: .9, Lambda: .8, HighLevelGamma: .95})
	near(t, "spaced", []float64{a[1], a[2], a[4], a[5]}, b[:4])
	near(t, "after the last turn", b[4:], []float64{-.5})
}

func outcomes(returns ...float64) []Trajectory {
	rows := make([]Trajectory, len(returns))
	for i, r := range returns {
		rows[i] = Trajectory{Mask: bits("0101"), Rewards: []float64{0, r - 1, 0, 1}}
	}
	return rows
}

func lastOf(advantages [][]float64) []float64 {
	out := make([]float64, len(advantages))
	for i, a := range advantages {
		out[i] = a[len(a)-1]
	}
	return out
}

func TestGroupEstimators(t *testing.T) {
	rows := outcomes(10.9, -1.1, -1, -1)
	grpo := []float64{1.499953, -.511157, -.494398, -.494398}
	near(t, "grpo", lastOf(GRPO(rows, true)), grpo)
	near(t, "dr.grpo", lastOf(GRPO(rows, false)), []float64{8.95, -3.05, -2.95, -2.95})
	near(t, "rloo", lastOf(whole("rloo", rows, false)), []float64{11.933333, -4.066667, -3.933333, -3.933333})
	near(t, "one row", GRPO(rows, true)[0], []float64{0, grpo[0], 0, grpo[0]})

	for i := range rows {
		rows[i].Group = i / 2
	}
	near(t, "brpo", lastOf(BRPO(rows, true)), grpo)
	near(t, "groups of two", lastOf(GRPO(rows, false)), []float64{6, -6, 0, 0})
	near(t, "spreadless group", lastOf(GRPO(rows, true))[2:], []float64{0, 0})

	single := outcomes(3)
	near(t, "grpo singleton", lastOf(GRPO(single, true)), []float64{3 / (1 + 1e-6)})
	near(t, "dr.grpo singleton", lastOf(GRPO(single, false)), []float64{3})
	near(t, "rloo singleton", lastOf(whole("rloo", single, false)), []float64{3})
}

func TestReinforcePP(t *testing.T) {
	row := Trajectory{Mask: bits("11011"), Rewards: []float64{0, 1, 0, 0, 4}}
	near(t, "reward to go", rewardToGo([]Trajectory{row}, .5)[0], []float64{1, 2, 0, 2, 4})
	e := Compute([]Trajectory{row}, Options{Advantage: "reinforce_pp", Gamma: .5}, 1)
	near(t, "returns", e.Returns[0], []float64{1, 2, 0, 2, 4})
	std := math.Sqrt((1.25*1.25 + .25*.25 + .25*.25 + 1.75*1.75) / 3)
	near(t, "whitened", e.Advantages[0], []float64{-1.25 / std, -.25 / std, 0, -.25 / std, 1.75 / std})

	rows := outcomes(10.9, -1.1, -1, -1)
	e = Compute(rows, Options{Advantage: "reinforce_pp_baseline"}, 1)
	// Each return appears on two tokens: the variance over 8 tokens is 2·Σd²/7.
	std = math.Sqrt(2 * 3 * 5.966853 * 5.966853 / 7)
	near(t, "baseline", lastOf(e.Advantages), []float64{8.95 / std, -3.05 / std, -2.95 / std, -2.95 / std})
}

func TestWhitenSmallBatches(t *testing.T) {
	for _, a := range [][]float64{{}, {0}, {5}} {
		batch, masks := [][]float64{a}, [][]bool{bits(strings.Repeat("1", len(a)))}
		whiten(batch, masks)
		for _, x := range batch[0] {
			if x != 0 {
				t.Errorf("whitened %v", batch)
			}
		}
	}
}

func TestModifiers(t *testing.T) {
	rows := []Trajectory{
		{Group: 7, Mask: bits("11"), Rewards: []float64{0, 4}}, {Group: 7, Mask: bits("0111"),
			Rewards: []float64{0, 0, 0, 0}},
		{Group: 2, Mask: bits("1"), Rewards: []float64{1}}, {Group: 2, Mask: bits("11"), Rewards: []float64{0, 0}},
	}
	a := Options{Advantage: "grpo", NormByStd: false, SoftReweight: true}
	e := Compute(rows, a, .5)
	near(t, "soft weight × loss scale", lastOf(e.Advantages), []float64{1, -1, .0625, -.0625})
	near(t, "returns are not scaled", lastOf(e.Returns), []float64{2, -2, .5, -.5})
	near(t, "metrics", []float64{e.Reweighting.Min, e.Reweighting.Max,
		e.Reweighting.Mean}, []float64{.25, 1, .625})

	a = Options{Advantage: "grpo", LengthWeight: true}
	e = Compute(rows, a, 1)
	near(t, "length weight", lastOf(e.Advantages), []float64{2, -2 * 2 / 3., .5 * 2, -.5})

	a.ZeroTaskAdvantage = true
	e = Compute(rows, a, 1)
	near(t, "zeroed", lastOf(e.Advantages), []float64{0, 0, 0, 0})
}

// Adding a constant to all returns or reordering a group changes no group-relative advantage.
func TestGroupInvariance(t *testing.T) {
	base := lastOf(GRPO(outcomes(3, 1, 2, 5), true))
	near(t, "shifted", lastOf(GRPO(outcomes(103, 101, 102, 105), true)), base)
	near(t, "reordered", lastOf(GRPO(outcomes(5, 2, 1, 3), true)), []float64{base[3], base[2], base[1], base[0]})
	sum := 0.0
	for _, a := range base {
		sum += a
	}
	near(t, "sum", []float64{sum}, []float64{0})
}

// whole estimates with one of the estimators that compare episodes.
func whole(name string, episodes []Trajectory, normByStd bool) [][]float64 {
	e := Compute(episodes, Options{Advantage: name, NormByStd: normByStd}, 1)
	return e.Advantages
}

func GRPO(episodes []Trajectory, normByStd bool) [][]float64 {
	return whole("grpo", episodes, normByStd)
}
func BRPO(episodes []Trajectory, normByStd bool) [][]float64 {
	return whole("brpo", episodes, normByStd)
}

// Of episodes of three turns whose only reward is at the end, all replies are credited alike where nothing is
// discounted, whatever the estimator: a success above a failure of its group, and observations with nothing.
func TestOutcomesCreditEveryTurn(t *testing.T) {
	mask := bits("0110011100110")
	for _, e := range Estimators {
		estimator := e.Name
		var batch []Trajectory
		for i, outcome := range []float64{1, 0, 0, 1, 1, 0} {
			e := Trajectory{Group: i / 2, Mask: mask, Rewards: make([]float64, len(mask)),
				Values: make([]float64, len(mask)), TurnEnds: []int{2, 7, 11}, Energies: slices.Repeat([]float64{.5}, len(mask))}
			e.Rewards[11] = outcome
			batch = append(batch, e)
		}
		found := Compute(batch, Options{Advantage: estimator, Gamma: 1, Lambda: 1, HighLevelGamma: 1,
			NormByStd: true}, 1)
		for i, own := range found.Advantages {
			want := own[1]
			if estimator == "reinforce" { // whose failures teach nothing
				want -= .5
			}
			if success := batch[i].Rewards[11] > 0; (want > 0) != success || math.Abs(want) < .499 {
				t.Errorf("%s: an episode that earned %v has the advantage %v", estimator, batch[i].Rewards[11], want)
			}
			want = own[1]
			for at, v := range own {
				if mask[at] && math.Abs(v-want) > 1e-7 || !mask[at] && v != 0 {
					t.Errorf("%s: token %d of %v has %v, the first %v", estimator, at, batch[i].Rewards[11], v, want)
				}
			}
		}
	}
}

func TestKL(t *testing.T) {
	policy, reference := []float32{-1, -9, -.2, -2}, []float32{-1.5, -1, -.1, -1}
	for estimator, want := range map[string][]float64{
		"k1": {.5, 0, -.1, -1}, "abs": {.5, 0, .1, 1}, "k2": {.125, 0, .005, .5},
		"k3": {.106531, 0, .005171, .718282}, "k3+": {.106531, 0, .005171, .718282},
	} {
		got := KL(estimator, policy, reference, bits("1011"))
		near(t, estimator, got, want)
	}
	got := KL("k3", []float32{-50}, []float32{0}, bits("1"))
	near(t, "k3 far away", got, []float64{10})
}

func TestPenalize(t *testing.T) {
	rows := [][]float64{{0, 0, 1}, {2}}
	mean := Penalize(rows, [][]bool{bits("101"), bits("1")}, [][]float64{{.5, 7, .1}, {.4}}, .1)
	near(t, "rewards", append(rows[0], rows[1]...), []float64{-.05, 0, .99, 1.96})
	near(t, "mean divergence", []float64{mean}, []float64{.35})
}

func TestController(t *testing.T) {
	for _, c := range []struct {
		horizon, divergence, want float64
	}{{0, 5, .01}, {1000, .11, .01 * 1.0128}, {1000, 5, .01 * 1.0256}, {1000, 0, .01 * .9744}} {
		k := Controller{Coef: .01, Target: .1, Horizon: c.horizon}
		k.Update(c.divergence, 128)
		near(t, "coefficient", []float64{k.Coef * 100}, []float64{c.want * 100})
	}
}
