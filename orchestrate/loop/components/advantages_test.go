package components

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/advantage"
)

func drawn(r *rand.Rand, weights map[string]float64, penalty bool) []Sample {
	var out []Sample
	for i := range 12 {
		s := Sample{Group: []int{4, 4, 4, 7, 7, 7, 7, 7, 9, 1, 1, 1}[i], Tokens: 1 + r.IntN(5), Parts: map[string]float64{}}
		for _, name := range []string{"c", "b", "a"} {
			s.Parts[name] = r.NormFloat64()
			s.Score += weights[name] * s.Parts[name]
		}
		if penalty && i%3 == 0 {
			s.Score -= .5
		}
		out = append(out, s)
	}
	return out
}

// walked gives the samples tokens, with rewards of the parts anywhere and a critic.
func walked(r *rand.Rand, samples []Sample, weights map[string]float64) {
	for i := range samples {
		s := &samples[i]
		n := 5 + r.IntN(6)
		p := &Path{Mask: make([]bool, n), Rewards: make([]float64, n), Parts: map[string][]float64{}, Values: make([]float64, n)}
		for t := range n {
			p.Mask[t], p.Values[t] = t != 0 && t != 3, r.NormFloat64()
		}
		p.TurnEnds = []int{2, n - 1}
		p.Rewards[n-1] = s.Score
		for _, name := range slices.Sorted(maps.Keys(s.Parts)) {
			p.Parts[name] = make([]float64, n)
			early := r.NormFloat64()
			p.Parts[name][2], p.Parts[name][n-1] = early, s.Parts[name]-early
			p.Rewards[2] += weights[name] * early
			p.Rewards[n-1] -= weights[name] * early
		}
		s.Tokens, s.Path = n-2, p
	}
}

// In exact mode the parts' advantages add up to the total's, whatever the estimator, and what the score holds beside them is a part, as is what
// a critic expected.
func TestExactPartsAddUp(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	weights := map[string]float64{"a": .5, "b": 2, "c": -1}
	for _, estimator := range []string{"grpo", "brpo", "rloo", "reinforce_pp_baseline", "gae", "bi_level_gae", "reinforce_pp"} {
		for _, normed := range []bool{true, false} {
			for _, penalty := range []bool{false, true} {
				samples := drawn(r, weights, penalty)
				algorithm := config.Algorithm{Advantage: estimator, NormByStd: normed, Gamma: .9, Lambda: .8, HighLevelGamma: .7}
				tokenwise := !algorithm.ComparesEpisodes()
				if tokenwise {
					walked(r, samples, weights)
				}
				a, err := Estimate(samples, config.Components{Mode: Exact}, weights, algorithm)
				if err != nil {
					t.Fatal(err)
				}
				want := []string{"a", "b", "c"}
				if penalty {
					want = append(want, Other)
				}
				if algorithm.UsesCritic() {
					want = append(want, Baseline)
				}
				if !slices.Equal(a.Names, want) || !a.Linear || (a.Tokens != nil) != tokenwise || len(a.Weights) != len(want) {
					t.Errorf("%s: names %v, linear %v, by token %v", estimator, a.Names, a.Linear, a.Tokens != nil)
				}
				for i := range samples {
					sum := 0.0
					for k := range a.Parts {
						sum += a.Parts[k][i]
					}
					if !(math.Abs(sum-a.Total[i]) <= 1e-9) {
						t.Errorf("%s, normed %v, penalty %v: episode %d: the parts add up to %v, the total is %v", estimator, normed, penalty, i, sum, a.Total[i])
					}
					for token := range tokensOf(a, i) {
						var sum, total float32
						for k := range a.Tokens {
							if k < len(a.Parts) {
								sum += a.Tokens[k][i][token]
							} else {
								total = a.Tokens[k][i][token]
							}
						}
						if !(math.Abs(float64(sum-total)) <= 1e-5) {
							t.Errorf("%s, penalty %v: episode %d, token %d: the parts add up to %v, the total is %v", estimator, penalty, i, token, sum, total)
						}
					}
				}
				// The total is the run's own.
				trajectories, _ := trajectories(samples, nil)
				run, err := advantage.Compute(trajectories, algorithm, 1)
				if err != nil {
					t.Fatal(err)
				}
				for i, own := range run.Advantages {
					if got, want := a.Total[i], advantage.SampledMean(own, trajectories[i].Mask); got != want {
						t.Errorf("%s: the total's advantage %d is %v, the run's %v", estimator, i, got, want)
					}
				}
			}
		}
	}
}

// tokensOf is how many tokens have an advantage of their own.
func tokensOf(a Advantages, i int) int {
	if a.Tokens == nil {
		return 0
	}
	return len(a.Tokens[0][i])
}

// With rewards at the end only and nothing discounted, all tokens of an episode are credited alike, and one backward pass serves all parts.
func TestTokensAlikeNeedOnePass(t *testing.T) {
	weights := map[string]float64{"a": .5, "b": 2, "c": -1}
	samples := drawn(rand.New(rand.NewPCG(4, 7)), weights, false)
	for gamma, want := range map[float64]bool{1: false, .9: true} {
		a, err := Estimate(samples, config.Components{Mode: Exact}, weights, config.Algorithm{Advantage: "reinforce_pp", Gamma: gamma})
		if err != nil || (a.Tokens != nil) != want {
			t.Errorf("gamma %v: by token %v, %v", gamma, a.Tokens != nil, err)
		}
	}
}

// A part that all members of a group earned alike has no advantages there, however its decimals round.
func TestEqualPartsHaveNoAdvantage(t *testing.T) {
	for _, n := range []int{2, 3, 6, 7, 9} {
		for _, v := range []float64{.1, .65, .9, -.3} {
			samples := make([]Sample, n)
			for i := range samples {
				samples[i] = Sample{Tokens: 2, Score: float64(i), Parts: map[string]float64{"x": v}}
			}
			for _, mode := range []string{Independent, Exact} {
				a, err := Estimate(samples, config.Components{Mode: mode}, nil, config.Algorithm{Advantage: "grpo", NormByStd: true})
				if err != nil {
					t.Fatal(err)
				}
				for _, x := range a.Parts[0] {
					if x != 0 {
						t.Fatalf("%d times %v, %s: advantage %v", n, v, mode, x)
					}
				}
			}
		}
	}
}

func TestIndependentPartsAreOnTheirOwn(t *testing.T) {
	weights := map[string]float64{"a": .5, "b": 2, "c": -1}
	samples := drawn(rand.New(rand.NewPCG(8, 8)), weights, false)
	for estimator, linear := range map[string]bool{"grpo": false, "rloo": true, "brpo": false, "reinforce_pp_baseline": false} {
		a, err := Estimate(samples, config.Components{Mode: Independent, Names: []string{"b", "a", "c"}}, weights, config.Algorithm{Advantage: estimator, NormByStd: true})
		if err != nil {
			t.Fatal(err)
		}
		alone := make([]Sample, len(samples))
		for i, s := range samples {
			s.Score = s.Parts["b"]
			alone[i] = s
		}
		only, err := Estimate(alone, config.Components{Mode: Independent}, nil, config.Algorithm{Advantage: estimator, NormByStd: true})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(a.Parts[0], only.Total) || a.Linear != linear || !slices.Equal(a.Weights, []float64{2, .5, -1}) {
			t.Errorf("%s: part %v, as the only reward %v; linear %v, weights %v", estimator, a.Parts[0], only.Total, a.Linear, a.Weights)
		}
	}
}

// Parts on their own add up only where the estimator is linear in rewards, and where the parts are all that the score holds.
func TestIndependentPartsThatAddUp(t *testing.T) {
	weights := map[string]float64{"a": .5, "b": 2, "c": -1}
	for _, c := range []struct {
		estimator       string
		normed, penalty bool
		linear          bool
	}{
		{"rloo", true, false, true}, {"rloo", false, false, true}, {"rloo", false, true, false},
		{"grpo", true, false, false}, {"grpo", false, false, true}, {"grpo", false, true, false},
		{"brpo", true, false, false}, {"brpo", false, false, true}, {"brpo", false, true, false},
		{"reinforce_pp_baseline", false, false, false}, {"reinforce_pp", false, false, false}, {"gae", false, false, false}, {"bi_level_gae", false, false, false},
	} {
		r := rand.New(rand.NewPCG(9, 9))
		samples := drawn(r, weights, c.penalty)
		algorithm := config.Algorithm{Advantage: c.estimator, NormByStd: c.normed, Gamma: .9, Lambda: .8, HighLevelGamma: .7}
		if !algorithm.ComparesEpisodes() {
			walked(r, samples, weights)
		}
		a, err := Estimate(samples, config.Components{Mode: Independent}, weights, algorithm)
		if err != nil {
			t.Fatal(err)
		}
		if a.Linear != c.linear {
			t.Errorf("%+v: linear %v", c, a.Linear)
		}
	}
}

func TestPartsThatAreNotThere(t *testing.T) {
	samples := []Sample{{Tokens: 1, Parts: map[string]float64{"format": 1}}, {Tokens: 1}}
	for want, c := range map[string]config.Components{`lists "correctness"`: {Names: []string{"correctness"}}} {
		if _, err := Estimate(samples, c, nil, config.Algorithm{Advantage: "grpo"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if _, err := Estimate(samples[1:], config.Components{}, nil, config.Algorithm{Advantage: "grpo"}); err == nil || !strings.Contains(err.Error(), "no episode has components") {
		t.Errorf("episodes without parts: %v", err)
	}
	a, err := Estimate(samples, config.Components{}, nil, config.Algorithm{Advantage: "grpo"})
	if err != nil || a.Parts[0][0] != .5 || a.Parts[0][1] != -.5 {
		t.Errorf("an episode without the part has earned 0 of it: %+v, %v", a, err)
	}
}

// What rounding leaves of large scores is no part of its own, and two tokens are enough to whiten.
func TestLargeScoresAndFewTokens(t *testing.T) {
	weights := map[string]float64{"a": .1, "b": .7, "c": .2}
	samples := drawn(rand.New(rand.NewPCG(1, 8)), weights, false)
	for i := range samples {
		samples[i].Score = 0
		for name, weight := range weights {
			samples[i].Parts[name] *= 1e9
			samples[i].Score += weight * samples[i].Parts[name]
		}
	}
	a, err := Estimate(samples, config.Components{Mode: Exact}, weights, config.Algorithm{Advantage: "grpo", NormByStd: true})
	if err != nil || len(a.Names) != 3 {
		t.Errorf("names %v, %v", a.Names, err)
	}
	for _, tokens := range [][2]int{{1, 1}, {1, 3}} {
		two := []Sample{{Tokens: tokens[0], Score: 3, Parts: map[string]float64{"a": 1, "b": 2}}, {Tokens: tokens[1], Score: -1, Parts: map[string]float64{"a": -2, "b": 1}}}
		a, err := Estimate(two, config.Components{Mode: Exact}, nil, config.Algorithm{Advantage: "reinforce_pp_baseline"})
		if err != nil {
			t.Fatal(err)
		}
		for i := range two {
			if sum := a.Parts[0][i] + a.Parts[1][i]; !(math.Abs(sum-a.Total[i]) <= 1e-12) || sum == 0 {
				t.Errorf("%v tokens: the parts add up to %v, the total is %v", tokens, sum, a.Total[i])
			}
		}
	}
}
