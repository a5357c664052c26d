package laboratory

import (
	"math"
	"slices"
	"strings"
	"testing"

	"gyre/orchestrate/loop/advantage"
)

// near compares vectors up to rounding.
func near(t *testing.T, what string, got, want []float64) {
	t.Helper()
	for i := range want {
		if !(math.Abs(got[i]-want[i]) <= 1e-9) {
			t.Errorf("%s: %v, want %v", what, got, want)
			return
		}
	}
}

func game(t *testing.T, name string) Game {
	t.Helper()
	for _, g := range Games() {
		if g.Name == name {
			return g
		}
	}
	t.Fatalf("there is no game %s", name)
	return Game{}
}

// combined is Σ factor·vector.
func combined(factors []float64, vectors ...[]float64) []float64 {
	out := make([]float64, len(vectors[0]))
	for k, v := range vectors {
		for i := range v {
			out[i] += factors[k] * v[i]
		}
	}
	return out
}

func (g Game) expectation(earned func(path) float64) (sum float64) {
	for _, p := range g.paths() {
		sum += g.Start[p.start()] * g.probability(p, policy(g.Logits)) * earned(p)
	}
	return sum
}

func (p path) turns() (n int) {
	for _, d := range p.decisions {
		if d.turn {
			n++
		}
	}
	return n
}

func (p path) tokens() float64 { return float64(len(p.decisions)) }

// The gradient is the slope of the expected return, and probabilities add up to 1.
func TestTrueGradient(t *testing.T) {
	const step = 1e-5
	for _, g := range Games() {
		if sum := g.expectation(func(path) float64 { return 1 }); math.Abs(sum-1) > 1e-12 {
			t.Errorf("%s: probabilities add up to %v", g.Name, sum)
		}
		gradient := g.Gradient(g.Logits)
		at := 0
		for _, row := range g.Logits {
			for a, v := range row {
				row[a] = v + step
				above := g.expectation(path.reward)
				row[a] = v - step
				slope := (above - g.expectation(path.reward)) / (2 * step)
				if row[a] = v; math.Abs(slope-gradient[at]) > 1e-8 {
					t.Errorf("%s: logit %d: %v, slope %v", g.Name, at, gradient[at], slope)
				}
				at++
			}
		}
		// The value of the start is the expected return.
		value, values := 0.0, g.values(policy(g.Logits), 1)
		for s, p := range g.Start {
			value += p * values[0][s]
		}
		if math.Abs(value-g.expectation(path.reward)) > 1e-12 {
			t.Errorf("%s: the start is worth %v", g.Name, value)
		}
	}
}

// Multisets with their probabilities are all sequences, put together.
func TestMultisets(t *testing.T) {
	p := []float64{.5, .2, .3}
	want := map[[3]int]float64{}
	for i := range 27 {
		members := []int{i / 9, i / 3 % 3, i % 3}
		product := p[members[0]] * p[members[1]] * p[members[2]]
		slices.Sort(members)
		want[[3]int(members)] += product
	}
	all, few := multisets(p, 3, 10)
	if _, fewer := multisets(p, 3, 9); len(all) != len(want) || len(all) != 10 || !few || fewer {
		t.Fatalf("%d multisets, want %d", len(all), len(want))
	}
	for _, m := range all {
		if w := want[[3]int(m.members)]; math.Abs(m.p-w) > 1e-15 {
			t.Errorf("%v: %v, want %v", m.members, m.p, w)
		}
	}
}

// Every estimator is what it claims to be, and a wrong claim is found out.
func TestEstimatorsKeepTheirClaims(t *testing.T) {
	reports, err := Check(t.Context(), advantage.Estimators, Options{Size: 2, Samples: 2000})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reports {
		if why := r.Broken(); why != "" {
			t.Errorf("%s %s", r.Name, why)
		}
		if r.Claim.Why == "" {
			t.Errorf("%s: nobody says why it is %s", r.Name, r.Claim.Whole)
		}
		for _, wrong := range []advantage.Property{advantage.Unbiased, advantage.Scaled, advantage.Biased} {
			if wrong == r.Claim.Whole {
				continue
			}
			lying := r
			lying.Claim.Whole = wrong
			// Each unbiased estimator is a scaled one. That james_stein has no bias shows only where batches of three
			// groups are listed, which is in too few games.
			honest := r.Claim.Whole == advantage.Unbiased && wrong == advantage.Scaled ||
				r.Name == "james_stein" && wrong == advantage.Biased
			if got := lying.Broken(); (got == "") != honest {
				t.Errorf("%s: claims to be %s: %q", r.Name, wrong, got)
			}
		}
	}
}

// The unbiased estimators are so in all games that can be listed, in groups of any size, and GAE of exact values for
// any λ; a critic that knows nothing needs λ = 1.
func TestUnbiasedEstimators(t *testing.T) {
	games := []Game{game(t, "bandit"), game(t, "tasks"), game(t, "reply"), StopChain(2), StopChain(3), game(t, "tools"),
		game(t, "walk")}
	for _, name := range []string{"reinforce", "rloo", "turn_rloo", "optimal_turn_baseline", "james_stein", "gae",
		"bi_level_gae", "reinforce_pp"} {
		for _, g := range games {
			for _, size := range []int{2, 3} {
				s := plain(name, Options{Size: size})
				s.Linear, s.Lambda = true, 0.7
				m := Measure(g, s, 5000, 1)
				if !m.Exact {
					continue
				}
				near(t, name+" in "+g.Name, m.Mean, m.Truth)
				s.Blind = true
				blind := Measure(g, s, 5000, 1)
				s.Lambda = 1
				if whole := Measure(g, s, 5000, 1); whole.Bias.Value > exactly {
					t.Errorf("%s in %s: λ = 1 needs a critic: %v", name, g.Name, whole.Bias)
				}
				if biased := strings.Contains(name, "gae") && g.Horizon > 1; biased != (blind.Bias.Value > 1e-3) {
					t.Errorf("%s in %s, λ = 0.7 with a critic of zeros: bias %v", name, g.Name, blind.Bias)
				}
			}
		}
	}
}

// Advantages of the centred return are (n − 1)/n of the others': of RLOO, and of leaving the division out of GRPO.
func TestCentredReturnsAreScaled(t *testing.T) {
	for _, name := range []string{"grpo", "reinforce_pp_baseline", "gdpo"} {
		for _, size := range []int{2, 4} {
			s := plain(name, Options{Size: size})
			s.Linear = true
			m := Measure(StopChain(2), s, 5000, 1)
			near(t, name, m.Mean, combined([]float64{1 - 1/float64(size)}, m.Truth))
		}
	}
}

// others is E[1 - 1/(1+N)] of a binomial number N of n - 1 others, and the probability of N = 0.
func others(p float64, n int) (factor, none float64) {
	return 1 - (1-math.Pow(1-p, float64(n)))/(float64(n)*p), math.Pow(1-p, float64(n-1))
}

// Normalising rewards by the turn's index takes the means of earlier rewards from the decision to go on: without the
// division, with m_l the mean of the rewards of turn l that are not the last, Q_l the probability that l is not the
// last turn, and o the last reward,
//
//	E[g] = Σ_l [c_l·Q_l·∇m_l + (1 − Q_l)^(n−1)·∇(Q_l m_l)] + (1 − 1/n)·∇E[o],   c_l = 1 − (1 − (1 − Q_l)^n)/(n·Q_l).
//
// With many episodes that is ∇J − Σ m_l ∇Q_l (verl#7244).
func TestBiasByTurnIndex(t *testing.T) {
	for _, turns := range []int{2, 3, 4} {
		g := StopChain(turns)
		for _, n := range []int{2, 3, 4} {
			last := func(p path) float64 { return p.decisions[len(p.decisions)-1].reward }
			want := combined([]float64{1 - 1/float64(n)}, g.expectedGradient(g.Logits, last))
			for l := range turns - 1 {
				goes := func(p path) float64 {
					if p.turns() > l+1 {
						return 1
					}
					return 0
				}
				earned := func(p path) float64 {
					if goes(p) == 0 {
						return 0
					}
					return p.decisions[l].reward
				}
				q := g.expectation(goes)
				mean, factor, alone := g.expectation(earned)/q, 0.0, 0.0
				factor, alone = others(q, n)
				both, going := g.expectedGradient(g.Logits, earned), g.expectedGradient(g.Logits, goes)
				// Q∇m = ∇(Qm) − m∇Q
				want = combined([]float64{1, factor + alone, -factor * mean}, want, both, going)
			}
			s := plain("mt_grpo", Options{Size: n})
			s.Linear = true
			m := Measure(g, s, 60000, 1)
			if !m.Exact {
				t.Fatalf("%d turns, groups of %d: not listed", turns, n)
			}
			near(t, "mt_grpo", m.Mean, want)
			if n < 4 || turns < 3 {
				continue
			}
			drawn := Measure(g, s, 3000, 1)
			if b := drawn.Bias; drawn.Exact || !(b.Low <= m.Bias.Value && m.Bias.Value <= b.High && b.Low > 0) {
				t.Errorf("%d turns: drawn %v, listed %v", turns, b, m.Bias)
			}
		}
	}
}

// Rewards to come by the turn's index shrink a turn that a share P of the episodes reaches by 1 − (1 − (1 − P)^n)/(nP),
// and leave it where nobody else reaches it.
func TestScaleByTurnIndex(t *testing.T) {
	g := StopChain(3)
	s := plain("turn_grpo", Options{Size: 3})
	s.Linear = true
	m := Measure(g, s, 5000, 1)
	for turn := range 3 {
		reach := g.expectation(func(p path) float64 {
			if p.turns() > turn {
				return 1
			}
			return 0
		})
		factor, alone := others(reach, 3)
		block := func(v []float64) []float64 { return v[3*turn : 3*turn+3] }
		near(t, "turn", block(m.Mean), combined([]float64{factor + alone}, block(m.Truth)))
	}
}

// Dividing by an episode's tokens L makes RLOO's gradient that of E[(R − J)/L] with J held fast, and dividing by a
// batch's tokens, of two episodes, that of 2·E[(R − R')/(L + L')] with the other episode held fast: tokens of long
// replies count less. With more episodes in the batch the latter fades.
func TestBiasByLength(t *testing.T) {
	for _, g := range []Game{game(t, "reply"), StopChain(3)} {
		mean := g.expectation(path.reward)
		want := g.expectedGradient(g.Logits, func(p path) float64 { return (p.reward() - mean) / p.tokens() })
		s := plain("rloo", Options{Size: 2})
		s.Aggregation = "seq-mean-token-mean"
		m := Measure(g, s, 5000, 1)
		near(t, s.Aggregation, m.Mean, want)

		s.Aggregation, want = "token-mean", make([]float64, len(want))
		for _, other := range g.paths() {
			p := g.Start[other.start()] * g.probability(other, policy(g.Logits))
			want = combined([]float64{1, 2 * p}, want, g.expectedGradient(g.Logits, func(own path) float64 {
				return (own.reward() - other.reward()) / (own.tokens() + other.tokens())
			}))
		}
		byBatch := Measure(g, s, 5000, 1)
		near(t, s.Aggregation, byBatch.Mean, want)
		s.Size = 4
		if larger := Measure(g, s, 5000, 1); !(larger.Bias.Value < byBatch.Bias.Value &&
			byBatch.Bias.Value < m.Bias.Value) {
			t.Errorf("%s: bias %v by episode, %v by two of them, %v by four", g.Name, m.Bias, byBatch.Bias, larger.Bias)
		}
		if g.Name == "reply" { // what the last of three tokens decides counts a third, and a first token more
			if first, last := m.Mean[0]/m.Truth[0], m.Mean[4]/m.Truth[4]; math.Abs(last-1./3) > exactly || first < .5 {
				t.Errorf("the first token counts %v, the last %v", first, last)
			}
		}
	}
}

// Dividing by the group's deviation makes a question of success p count Σ_k B(k; n, p)·[k·A₊/p − (n − k)·A₋/(1 − p)]/n
// where it should count 1: the hard question more than the easy one.
func TestBiasByDifficulty(t *testing.T) {
	g := game(t, "tasks")
	chosen := policy(g.Logits)
	for _, n := range []int{2, 4, 8} {
		m := Measure(g, plain("grpo", Options{Size: n}), 5000, 1)
		var shares []float64
		for task, p := range []float64{chosen[0][0]*.8 + chosen[0][1]*.2, chosen[1][0] * .4} {
			want, binomial := 0.0, math.Pow(1-p, float64(n))
			for k := range n + 1 {
				share := float64(k) / float64(n)
				scale := math.Sqrt(share*(1-share)*float64(n)/float64(n-1)) + 1e-6
				want += binomial * (share*(1-share)/p + (1-share)*share/(1-p)) / scale
				binomial *= float64(n-k) / float64(k+1) * p / (1 - p)
			}
			shares = append(shares, want)
			near(t, "task", m.Mean[2*task:2*task+2], combined([]float64{want}, m.Truth[2*task:2*task+2]))
		}
		if ratio := shares[1] / shares[0]; (n > 2) != (ratio > 1.05) {
			t.Errorf("groups of %d: the hard question counts %v of the easy one", n, ratio)
		}
	}
}

// Ratios by sequence make up for the age of the policy that drew the episodes, up to float32's log-probs; those by
// token do not, nor does nothing.
func TestAge(t *testing.T) {
	biases := map[string]float64{}
	for _, ratio := range []string{"", "token", "sequence"} {
		s := plain("rloo", Options{Size: 2})
		s.Age, s.Ratio = 3, ratio
		biases[ratio] = Measure(StopChain(3), s, 5000, 1).Bias.Value
	}
	if !(biases["sequence"] < 1e-6 && 1e-2 < biases["token"] && biases["token"] < biases[""]) {
		t.Errorf("%v", biases)
	}
}

// The optimal baseline has less variance than the mean where energies and returns go together, and a baseline less than
// none.
func TestVariance(t *testing.T) {
	noise := map[string]float64{}
	for _, name := range []string{"reinforce", "rloo", "turn_rloo"} {
		noise[name] = Measure(StopChain(3), plain(name, Options{Size: 4}), 5000, 1).Variance
	}
	for _, name := range []string{"turn_rloo", "optimal_turn_baseline"} {
		noise[name+", bandit"] = Measure(game(t, "bandit"), plain(name, Options{Size: 4}), 5000, 1).Variance
	}
	if !(noise["turn_rloo"] < noise["rloo"] && noise["rloo"] < noise["reinforce"] &&
		noise["optimal_turn_baseline, bandit"] < noise["turn_rloo, bandit"]) {
		t.Errorf("%v", noise)
	}
	// A gradient of one token is A·(1{a} − π): its variance follows from the two outcomes.
	g := Game{Horizon: 1, Start: []float64{1}, Logits: [][]float64{{0, 0}},
		States: []State{{Actions: [][]Outcome{over(1, 1), over(0, 1)}}}}
	m := Measure(g, plain("reinforce", Options{Size: 2}), 100, 1)
	// ±½ with 1, or nothing: the mean is (¼, −¼), E‖g‖² of one episode ¼, less ⅛, over ⅛.
	if math.Abs(m.Variance-1) > 1e-12 || math.Abs(m.Mean[0]-.25) > 1e-15 {
		t.Errorf("variance %v, mean %v", m.Variance, m.Mean)
	}
}
