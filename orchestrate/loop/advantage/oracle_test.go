package advantage

import (
	"math"
	"math/rand/v2"
	"testing"

	"gyre/internal/statistics"
)

// randomBatch has episodes of several turns in groups of several sizes, with observations between replies.
func randomBatch(r *rand.Rand) []Trajectory {
	var out []Trajectory
	for g := range 1 + r.IntN(4) {
		for range 1 + r.IntN(5) {
			e := Trajectory{Group: 3 * g}
			for range 1 + r.IntN(3) {
				for range r.IntN(3) {
					e.Mask = append(e.Mask, false)
				}
				for range 1 + r.IntN(4) {
					e.Mask = append(e.Mask, true)
				}
				e.TurnEnds = append(e.TurnEnds, len(e.Mask)-1)
			}
			for _, sampled := range e.Mask {
				e.Rewards, e.Values = append(e.Rewards, 0), append(e.Values, r.NormFloat64())
				e.Energies = append(e.Energies, 2*r.Float64())
				if t := len(e.Rewards) - 1; sampled && r.IntN(3) == 0 {
					e.Rewards[t] = 5 * r.NormFloat64()
				}
			}
			out = append(out, e)
		}
	}
	return out
}

// sampledTokens are the indices that exist in time.
func sampledTokens(e Trajectory) (out []int) {
	for t, sampled := range e.Mask {
		if sampled {
			out = append(out, t)
		}
	}
	return out
}

// gaeSum is the definition of Schulman et al. (2016): the sum over all later tokens of their errors, each discounted
// by the distance.
func gaeSum(rewards, values []float64, gamma, lambda float64) []float64 {
	out := make([]float64, len(rewards))
	for t := range rewards {
		for k := t; k < len(rewards); k++ {
			next := 0.0
			if k+1 < len(values) {
				next = values[k+1]
			}
			out[t] += math.Pow(gamma*lambda, float64(k-t)) * (rewards[k] + gamma*next - values[k])
		}
	}
	return out
}

func close12(t *testing.T, what string, got, want float64) {
	t.Helper()
	if !(math.Abs(got-want) <= 1e-10*(1+math.Abs(want))) {
		t.Fatalf("%s = %.15g, want %.15g", what, got, want)
	}
}

func TestEstimatorsEqualTheirDefinitions(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 3))
	for range 300 {
		batch := randomBatch(r)
		gamma, lambda, high := .5+r.Float64()/2, r.Float64(), .5+r.Float64()/2
		for _, e := range batch {
			at := sampledTokens(e)
			rewards, values := make([]float64, len(at)), make([]float64, len(at))
			for k, i := range at {
				rewards[k], values[k] = e.Rewards[i], e.Values[i]
			}
			want := gaeSum(rewards, values, gamma, lambda)
			advantages, returns := discounted(e, gamma, lambda)
			for k, i := range at {
				close12(t, "gae", advantages[i], want[k])
				close12(t, "gae's return", returns[i], want[k]+values[k])
			}

			// Turns first: their rewards and values are those of their last tokens; then every turn on its own, ended
			// by its return.
			var turnRewards, turnValues []float64
			for _, end := range e.TurnEnds {
				turnRewards, turnValues = append(turnRewards, e.Rewards[end]), append(turnValues, e.Values[end])
			}
			turns := gaeSum(turnRewards, turnValues, high, lambda)
			advantages, returns = byTurns(e, Options{Gamma: gamma, Lambda: lambda, HighLevelGamma: high})
			begin := 0
			for k, end := range e.TurnEnds {
				var own []int
				for _, i := range at {
					if i >= begin && i <= end {
						own = append(own, i)
					}
				}
				begin = end + 1
				rewards, values := make([]float64, len(own)), make([]float64, len(own))
				for j, i := range own {
					rewards[j], values[j] = e.Rewards[i], e.Values[i]
				}
				rewards[len(own)-1] = turns[k] + turnValues[k]
				want := gaeSum(rewards, values, gamma, lambda)
				for j, i := range own {
					close12(t, "bi-level gae", advantages[i], want[j])
					close12(t, "bi-level gae's return", returns[i], want[j]+values[j])
				}
			}
			reach := rewardToGo([]Trajectory{e}, gamma)[0]
			for _, i := range at {
				sum, later := 0.0, 0
				for _, k := range at {
					if k >= i {
						sum += math.Pow(gamma, float64(later)) * e.Rewards[k]
						later++
					}
				}
				close12(t, "reward to go", reach[i], sum)
			}
		}
		groupDefinitions(t, batch)
		optimalDefinition(t, batch)
	}
}

// optimalDefinition compares the token baseline with its definition, one token at a time.
func optimalDefinition(t *testing.T, batch []Trajectory) {
	t.Helper()
	got := Compute(batch, Options{Advantage: "optimal_token_baseline"}, 1).Advantages
	come := func(e Trajectory, j int) (energy, reward float64) { // E and G at the j-th sampled token
		for k, i := range sampledTokens(e) {
			if k <= j {
				energy += e.Energies[i]
			}
			if k >= j {
				reward += e.Rewards[i]
			}
		}
		return energy, reward
	}
	for i, e := range batch {
		for j, at := range sampledTokens(e) {
			above, below, reach := 0.0, 1e-8, 0
			for _, o := range batch {
				if o.Group == e.Group && len(sampledTokens(o)) > j {
					energy, reward := come(o, j)
					above, below, reach = above+energy*reward, below+energy, reach+1
				}
			}
			_, want := come(e, j)
			if reach > 1 {
				want -= above / below
			}
			close12(t, "optimal_token_baseline", got[i][at], want)
		}
	}
}

func groupDefinitions(t *testing.T, batch []Trajectory) {
	t.Helper()
	returns := make([]float64, len(batch))
	for i, e := range batch {
		for _, r := range e.Rewards {
			returns[i] += r
		}
	}
	masks := make([][]bool, len(batch))
	var all, weights []float64
	grpo, dr, brpo, rloo := GRPO(batch, true), GRPO(batch, false), BRPO(batch, true), whole("rloo", batch, false)
	whitened := GRPO(batch, false)
	for i := range batch {
		masks[i] = batch[i].Mask
	}
	whiten(whitened, masks)
	for i, e := range batch {
		var group, others []float64
		for j, o := range batch {
			if o.Group == e.Group {
				group = append(group, returns[j])
				if j != i {
					others = append(others, returns[j])
				}
			}
		}
		mean, std, rest := statistics.Mean(group), statistics.Deviation(group), statistics.Mean(others)
		wholeMean, wholeStd := statistics.Mean(returns), statistics.Deviation(returns)
		if len(group) == 1 {
			mean, std, rest = 0, 1, 0
		}
		if len(returns) == 1 {
			wholeMean, wholeStd = 0, 1
		}
		for _, at := range sampledTokens(e) {
			close12(t, "grpo", grpo[i][at], (returns[i]-mean)/(std+1e-6))
			close12(t, "dr.grpo", dr[i][at], returns[i]-mean)
			close12(t, "brpo", brpo[i][at], (returns[i]-wholeMean)/(wholeStd+1e-6))
			close12(t, "rloo", rloo[i][at], returns[i]-rest) // from the mean of the others
			all, weights = append(all, dr[i][at]), append(weights, whitened[i][at])
		}
	}
	if len(all) < 2 {
		return
	}
	mean, std := statistics.Mean(all), math.Sqrt(math.Pow(statistics.Deviation(all), 2)+1e-8)
	for k, v := range all {
		close12(t, "whitened", weights[k], (v-mean)/std)
	}
}

// The unbiased variance of whitened advantages is 1 where it is far above 1e-8, and below that the 1e-8 holds them
// down.
func TestWhitenedVariance(t *testing.T) {
	for unit, want := range map[float64]float64{1: 1, 1e-4: math.Sqrt2 / 2, 1e-8: math.Sqrt(1e-8)} {
		batch, masks := [][]float64{{1*unit + 3, 7}, {-1*unit + 3, 3}}, [][]bool{{true, false}, {true, true}}
		whiten(batch, masks)
		got := statistics.Deviation([]float64{batch[0][0], batch[1][0], batch[1][1]})
		if batch[0][1] != 0 || math.Abs(got-want) > 1e-3*want {
			t.Errorf("a deviation of %g becomes %g, want %g (%v)", unit, got, want, batch)
		}
	}
	two := [][]float64{{1, 3}}
	whiten(two, [][]bool{{true, true}})
	if math.Abs(two[0][0]+1/math.Sqrt(2+1e-8)) > 1e-15 || two[0][1] != -two[0][0] {
		t.Errorf("two tokens: %v", two)
	}
}

// Weights are the group's deviation over the largest, and the least, the largest and the mean weight are told.
func TestSoftReweight(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for range 50 {
		batch := randomBatch(r)
		advantages, before := GRPO(batch, true), GRPO(batch, true)
		told := softReweight(advantages, batch)
		members := map[int][]float64{}
		for _, e := range batch {
			members[e.Group] = append(members[e.Group], statistics.Sum(e.Rewards))
		}
		stds, largest := map[int]float64{}, 0.0
		for id, group := range members {
			if stds[id] = 1; len(group) > 1 {
				stds[id] = statistics.Deviation(group)
			}
			largest = max(largest, stds[id])
		}
		least, most, mean := math.Inf(1), 0.0, 0.0
		for _, std := range stds {
			w := std / (largest + 1e-6)
			least, most, mean = min(least, w), max(most, w), mean+w/float64(len(stds))
		}
		for i, e := range batch {
			for at, v := range advantages[i] {
				close12(t, "reweighted", v, before[i][at]*stds[e.Group]/(largest+1e-6))
			}
		}
		close12(t, "least", told.Min, least)
		close12(t, "most", told.Max, most)
		close12(t, "mean", told.Mean, mean)
	}
	if told := softReweight(nil, nil); told != nil {
		t.Errorf("no groups: %v", told)
	}
}

// Small deviations show the terms that keep divisions away from 0.
func TestSmallDeviations(t *testing.T) {
	rows := outcomes(1e-6, 0)
	std := 1e-6 / math.Sqrt2
	near(t, "grpo", lastOf(GRPO(rows, true)), []float64{.5e-6 / (std + 1e-6), -.5e-6 / (std + 1e-6)})
	e := Compute(rows, Options{Advantage: "grpo", SoftReweight: true}, 1)
	close12(t, "largest weight", e.Reweighting.Max*(std+1e-6), std)
	lengths := [][]float64{{1}, {1, 1}}
	lengthWeight(lengths, [][]bool{{false}, {true, true}})
	close12(t, "an episode without tokens", lengths[0][0], 1/1e-6)
	close12(t, "one of two", lengths[1][0], 1/(2+1e-6))
}
