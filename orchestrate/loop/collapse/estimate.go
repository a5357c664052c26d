// Package collapse measures whether a policy's thoughts still depend on what it was shown (RAGEN-2, arXiv 2604.06268).
//
// A policy that has collapsed to a template thinks the same whatever the prompt. Its thoughts may be varied all the
// same, so that entropy alone does not show it: what has gone is the mutual information between prompt X and thought
// Z. It is estimated in the batch: each sampled thought is scored under its own prompt and under the others',
//
//	ℓ[i][j] = log p(Z_i | X_j)        matched a_i = ℓ[i][own(i)]        marginal g_i = log mean_j exp ℓ[i][j]
//	I(X; Z) ≈ mean (a − g) ≤ log N    H(Z|X) ≈ −mean a                  H(Z) ≈ −mean g
//
// Low information with high conditional entropy is template collapse; both low is entropy collapse.
//
//	sample.go    thoughts of turns, and which of them are measured
//	estimate.go  the numbers of a matrix ℓ
package collapse

import (
	"cmp"
	"math"
	"slices"

	"gyre/internal/statistics"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/train"
)

// Metrics are what a batch's thoughts owe to their prompts.
type Metrics struct {
	Valid      float64   `metric:"collapse/valid_thinking_rate" unit:"share" doc:"of turns with a closed thought that is not empty"`
	Starts     int       `metric:"collapse/first_turn_num_total" doc:"first turns"`
	FirstValid int       `metric:"collapse/first_turn_num_valid" doc:"those with such a thought"`
	FirstShare float64   `metric:"collapse/first_turn_valid_rate" unit:"share" doc:"of first turns with such a thought"`
	FirstTurn  *Estimate `metric:"collapse_first_turn_sample"`
	Trajectory *Estimate `metric:"collapse_trajectory_sample" doc:"the same of turns that are drawn from all"`
}

// Estimate is what the matrix ℓ of a sample says.
type Estimate struct {
	Bound     float64              `metric:"mi_upper_bound" unit:"nats" doc:"log N of N prompts"`
	Matched   float64              `metric:"matched_log_prob_mean" unit:"nats" doc:"mean a"`
	Marginal  float64              `metric:"marginal_log_prob_mean" unit:"nats" doc:"mean g"`
	Measures  map[string]Measures  `metric:""` // per token by "", summed over thoughts by "_seq"
	Retrieval map[string]Retrieval `metric:""` // among the K likeliest by "@K", the likeliest by ""
}

// Measures follow from the matched and the marginal log-probs.
type Measures struct {
	Information float64 `metric:"mi{,_seq}_estimate" unit:"nats" doc:"mean (a − g), the mutual information between prompt and thought: towards 0 thoughts ignore their prompts"`
	Conditional float64 `metric:"conditional_entropy{,_seq}_est" unit:"nats" doc:"−mean a"`
	Reasoning   float64 `metric:"reasoning_entropy{,_seq}_est" unit:"nats" doc:"−mean g. Low information with high conditional entropy is template collapse; both low: entropy collapse"`
	Std         float64 `metric:"marginal_std{,_seq}" unit:"nats" doc:"population standard deviation of g"`
	Average     float64 `metric:"marginal_std_ema{,_seq}" unit:"nats" doc:"its moving average over steps"`
	Score       float64 `metric:"mi_zscore{,_seq}" doc:"the information over that deviation + std_eps"`
	ScoreEMA    float64 `metric:"mi_zscore_ema{,_seq}" doc:"the same over the moving average"`
}

// Retrieval says how often the prompt under which a thought is likeliest is its own.
type Retrieval struct {
	Accuracy float64 `metric:"retrieval_accuracy{,@2,@4,@8}" unit:"share" doc:"of thoughts whose own prompt, or an equal one, is (among the K) likeliest"`
	Chance   float64 `metric:"retrieval_chance_level{,@2,@4,@8}" unit:"share" doc:"what guessing would find"`
	Above    float64 `metric:"retrieval_above_chance{,@2,@4,@8}" unit:"share" doc:"the difference"`
}

// estimate computes the numbers of a sample whose matrix of summed log-probs is filled: per sequence, and per token,
// where each row is divided by its thought's length. name keys the moving averages.
func (m *Meter) estimate(name string, s *sample, c config.Collapse) *Estimate {
	means := make([][]float64, len(s.sums))
	for i, row := range s.sums {
		for _, sum := range row {
			means[i] = append(means[i], sum/float64(len(s.rows[i].Thought)))
		}
	}
	out := &Estimate{Bound: math.Log(float64(len(s.prompts))), Measures: map[string]Measures{}}
	for suffix, matrix := range map[string][][]float64{"": means, "_seq": s.sums} {
		matched, marginal := make([]float64, len(s.rows)), make([]float64, len(s.rows))
		for i, row := range matrix {
			matched[i], marginal[i] = row[s.own[i]], logMeanExp(row)
		}
		a, g, std := statistics.Mean(matched), statistics.Mean(marginal), statistics.PopulationDeviation(marginal)
		average := m.average(name+"/marginal_std_ema"+suffix, std, c.EMADecay)
		out.Measures[suffix] = Measures{a - g, -a, -g, std, average, (a - g) / (std + c.StdEps),
			(a - g) / (average + c.StdEps)}
		if suffix == "" {
			out.Matched, out.Marginal = a, g
		}
	}
	out.Retrieval = s.retrieval(means)
	return out
}

// average moves an average, which begins with its first value.
func (m *Meter) average(name string, value, decay float64) float64 {
	if m.Deviations == nil {
		m.Deviations = map[string]float64{}
	}
	average, known := m.Deviations[name]
	if average = decay*average + (1-decay)*value; !known {
		average = value
	}
	m.Deviations[name] = average
	return average
}

// retrieval finds how often the prompt under which a thought is likeliest is its own, or equal to its own, and how
// often chance would find it.
func (s *sample) retrieval(matrix [][]float64) map[string]Retrieval {
	places, equals := make([]int, len(matrix)), make([]int, len(matrix))
	for i, row := range matrix {
		likeliest := train.All(len(row))
		slices.SortStableFunc(likeliest, func(a, b int) int { return cmp.Compare(row[b], row[a]) })
		for place, j := range slices.Backward(likeliest) {
			if slices.Equal(s.prompts[j], s.prompts[s.own[i]]) {
				places[i] = place
				equals[i]++
			}
		}
	}
	out, n := map[string]Retrieval{}, float64(len(matrix))
	for at, k := range map[string]int{"": 1, "@2": 2, "@4": 4, "@8": 8} {
		if k > len(s.prompts) {
			continue
		}
		hits, chance := 0.0, 0.0
		for i, place := range places {
			if place < k {
				hits++
			}
			chance += min(1, float64(k)*float64(equals[i])/float64(len(s.prompts)))
		}
		out[at] = Retrieval{hits / n, chance / n, (hits - chance) / n}
	}
	return out
}

func logMeanExp(row []float64) float64 {
	most, sum := slices.Max(row), 0.0
	for _, v := range row {
		sum += math.Exp(v - most)
	}
	return most + math.Log(sum/float64(len(row)))
}
