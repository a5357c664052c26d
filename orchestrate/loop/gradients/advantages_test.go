package gradients

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/advantage"
)

// rewarded is an episode of so many sampled tokens that earns what it does on the last.
func rewarded(group, tokens int, score float64, components map[string]float64) Rewarded {
	e := Rewarded{Components: map[string][]float64{}}
	e.Group, e.Mask, e.Rewards = group, slices.Repeat([]bool{true}, tokens), make([]float64, tokens)
	e.Rewards[tokens-1] = score
	for name, v := range components {
		e.Components[name] = make([]float64, tokens)
		e.Components[name][tokens-1] = v
	}
	return e
}

func drawn(r *rand.Rand, weights map[string]float64, penalty bool) []Rewarded {
	var out []Rewarded
	for i := range 12 {
		tokens, score, components := 1+r.IntN(5), 0.0, map[string]float64{}
		for _, name := range []string{"c", "b", "a"} {
			components[name] = r.NormFloat64()
			score += weights[name] * components[name]
		}
		if penalty && i%3 == 0 {
			score -= .5
		}
		out = append(out, rewarded([]int{4, 4, 4, 7, 7, 7, 7, 7, 9, 1, 1, 1}[i], tokens, score, components))
	}
	return out
}

// walked gives the episodes other tokens, with rewards of the components anywhere and a critic.
func walked(r *rand.Rand, episodes []Rewarded, weights map[string]float64) {
	for i := range episodes {
		e := &episodes[i]
		n := 5 + r.IntN(6)
		score := e.Rewards[len(e.Rewards)-1]
		e.Mask, e.Rewards, e.Values, e.TurnEnds = make([]bool, n), make([]float64, n), make([]float64, n),
			[]int{2, n - 1}
		e.States = []int{i % 2, 1}
		for t := range n {
			e.Mask[t], e.Values[t] = t != 0 && t != 3, r.NormFloat64()
		}
		e.Rewards[n-1] = score
		for _, name := range slices.Sorted(maps.Keys(e.Components)) {
			own := e.Components[name][len(e.Components[name])-1]
			e.Components[name] = make([]float64, n)
			early := r.NormFloat64()
			e.Components[name][2], e.Components[name][n-1] = early, own-early
			e.Rewards[2] += weights[name] * early
			e.Rewards[n-1] -= weights[name] * early
		}
	}
}

// In exact mode the parts' advantages add up to the total's, whatever the estimator, and what the score holds beside
// them is a part, as is what a critic expected.
func TestExactPartsAddUp(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	weights := map[string]float64{"a": .5, "b": 2, "c": -1}
	for _, estimator := range []string{"grpo", "brpo", "rloo", "reinforce_pp_baseline", "gae", "bi_level_gae",
		"reinforce_pp", "reinforce", "james_stein", "gigpo", "mt_grpo", "turn_grpo", "turn_rloo"} {
		for _, normed := range []bool{true, false} {
			for _, penalty := range []bool{false, true} {
				episodes := drawn(r, weights, penalty)
				algorithm := config.Algorithm{Advantage: estimator, NormByStd: normed, Gamma: .9, Lambda: .8,
					HighLevelGamma: .7, StepWeight: 1}
				tokenwise := !algorithm.ComparesEpisodes()
				if tokenwise {
					walked(r, episodes, weights)
				}
				a := Estimate(episodes, config.Components{Mode: "exact"}, weights, algorithm)
				want := []string{"a", "b", "c"}
				if penalty {
					want = append(want, Other)
				}
				if algorithm.UsesCritic() {
					want = append(want, Baseline)
				}
				if !slices.Equal(a.Names, want) || !a.Linear || (a.Tokens != nil) != tokenwise ||
					len(a.Weights) != len(want) {
					t.Errorf("%s: names %v, linear %v, by token %v", estimator, a.Names, a.Linear, a.Tokens != nil)
				}
				for i := range episodes {
					sum := 0.0
					for k := range a.Means {
						sum += a.Means[k][i]
					}
					if !(math.Abs(sum-a.Total[i]) <= 1e-9) {
						t.Errorf("%s, normed %v, penalty %v: episode %d: the parts add up to %v, the total is %v",
							estimator, normed, penalty, i, sum, a.Total[i])
					}
					for token := range tokensOf(a, i) {
						var sum, total float32
						for k := range a.Tokens {
							if k < len(a.Means) {
								sum += a.Tokens[k][i][token]
							} else {
								total = a.Tokens[k][i][token]
							}
						}
						if !(math.Abs(float64(sum-total)) <= 1e-5) {
							t.Errorf("%s, penalty %v: episode %d, token %d: the parts add up to %v, the total is %v",
								estimator, penalty, i, token, sum, total)
						}
					}
				}
				// The total is the run's own.
				var trajectories []advantage.Trajectory
				for _, e := range episodes {
					trajectories = append(trajectories, e.Trajectory)
				}
				run := advantage.Compute(trajectories, advantage.From(algorithm), 1)
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

// With rewards at the end only and nothing discounted, all tokens of an episode are credited alike, and one backward
// pass serves all parts.
func TestTokensAlikeNeedOnePass(t *testing.T) {
	weights := map[string]float64{"a": .5, "b": 2, "c": -1}
	episodes := drawn(rand.New(rand.NewPCG(4, 7)), weights, false)
	for gamma, want := range map[float64]bool{1: false, .9: true} {
		a := Estimate(episodes, config.Components{Mode: "exact"}, weights,
			config.Algorithm{Advantage: "reinforce_pp", Gamma: gamma})
		if (a.Tokens != nil) != want {
			t.Errorf("gamma %v: by token %v", gamma, a.Tokens != nil)
		}
	}
}

// A part that all members of a group earned alike has no advantages there, however its decimals round.
func TestEqualPartsHaveNoAdvantage(t *testing.T) {
	for _, n := range []int{2, 3, 6, 7, 9} {
		for _, v := range []float64{.1, .65, .9, -.3} {
			episodes := make([]Rewarded, n)
			for i := range episodes {
				episodes[i] = rewarded(0, 2, float64(i), map[string]float64{"x": v})
			}
			for _, mode := range []string{"independent", "exact"} {
				a := Estimate(episodes, config.Components{Mode: mode}, nil,
					config.Algorithm{Advantage: "grpo", NormByStd: true})
				for _, x := range a.Means[0] {
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
	episodes := drawn(rand.New(rand.NewPCG(8, 8)), weights, false)
	for estimator, linear := range map[string]bool{"grpo": false, "rloo": true, "brpo": false,
		"reinforce_pp_baseline": false} {
		a := Estimate(episodes, config.Components{Mode: "independent", Names: []string{"b", "a", "c"}}, weights,
			config.Algorithm{Advantage: estimator, NormByStd: true})
		alone := slices.Clone(episodes)
		for i, e := range alone {
			alone[i].Rewards = e.Components["b"]
		}
		only := Estimate(alone, config.Components{Mode: "independent"}, nil,
			config.Algorithm{Advantage: estimator, NormByStd: true})
		if !slices.Equal(a.Means[0], only.Total) || a.Linear != linear || !slices.Equal(a.Weights, []float64{2, .5,
			-1}) {
			t.Errorf("%s: part %v, as the only reward %v; linear %v, weights %v", estimator, a.Means[0], only.Total,
				a.Linear, a.Weights)
		}
	}
}

// Parts on their own add up only where the estimator is linear in rewards, and where the parts are all that the score
// holds.
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
		{"reinforce_pp_baseline", false, false, false}, {"reinforce_pp", false, false, false},
		{"gae", false, false, false}, {"bi_level_gae", false, false, false},
	} {
		r := rand.New(rand.NewPCG(9, 9))
		episodes := drawn(r, weights, c.penalty)
		algorithm := config.Algorithm{Advantage: c.estimator, NormByStd: c.normed, Gamma: .9, Lambda: .8,
			HighLevelGamma: .7, StepWeight: 1}
		if !algorithm.ComparesEpisodes() {
			walked(r, episodes, weights)
		}
		a := Estimate(episodes, config.Components{Mode: "independent"}, weights, algorithm)
		if a.Linear != c.linear {
			t.Errorf("%+v: linear %v", c, a.Linear)
		}
	}
}

// A component that is named but occurs in no episode is left out; with none that occurs there is nothing to measure.
func TestComponentsThatAreNotThere(t *testing.T) {
	episodes := []Rewarded{rewarded(0, 1, 0, map[string]float64{"format": 1}), rewarded(0, 1, 0, nil)}
	algorithm := config.Algorithm{Advantage: "grpo"}
	for _, names := range [][]string{{"correctness", "format"}, nil} {
		a := Estimate(episodes, config.Components{Names: names}, nil, algorithm)
		if !slices.Equal(a.Names, []string{"format"}) || a.Means[0][0] != .5 || a.Means[0][1] != -.5 {
			t.Errorf("%v: %+v; an episode without the component has earned 0 of it", names, a)
		}
	}
	for _, none := range []struct {
		episodes []Rewarded
		names    []string
	}{{episodes, []string{"correctness"}}, {episodes[1:], nil}} {
		if a := Estimate(none.episodes, config.Components{Names: none.names}, nil, algorithm); len(a.Names) > 0 {
			t.Errorf("%v: %+v", none.names, a)
		}
	}
}

// What rounding leaves of large scores is no part of its own, and two tokens are enough to whiten.
func TestLargeScoresAndFewTokens(t *testing.T) {
	weights := map[string]float64{"a": .1, "b": .7, "c": .2}
	episodes := drawn(rand.New(rand.NewPCG(1, 8)), weights, false)
	for i := range episodes {
		last := len(episodes[i].Rewards) - 1
		episodes[i].Rewards[last] = 0
		for name, weight := range weights {
			episodes[i].Components[name][last] *= 1e9
			episodes[i].Rewards[last] += weight * episodes[i].Components[name][last]
		}
	}
	a := Estimate(episodes, config.Components{Mode: "exact"}, weights, config.Algorithm{Advantage: "grpo",
		NormByStd: true})
	if len(a.Names) != 3 {
		t.Errorf("names %v", a.Names)
	}
	for _, tokens := range [][2]int{{1, 1}, {1, 3}} {
		two := []Rewarded{rewarded(0, tokens[0], 3, map[string]float64{"a": 1, "b": 2}),
			rewarded(0, tokens[1], -1, map[string]float64{"a": -2, "b": 1})}
		a := Estimate(two, config.Components{Mode: "exact"}, nil,
			config.Algorithm{Advantage: "reinforce_pp_baseline"})
		for i := range two {
			if sum := a.Means[0][i] + a.Means[1][i]; !(math.Abs(sum-a.Total[i]) <= 1e-12) || sum == 0 {
				t.Errorf("%v tokens: the parts add up to %v, the total is %v", tokens, sum, a.Total[i])
			}
		}
	}
}
