package collapse

import (
	"fmt"
	"math"
	"slices"

	"gyre/internal/statistics"
	"gyre/orchestrate/config"
)

// Metrics are what a batch's thoughts owe to their prompts.
type Metrics struct {
	Valid      *float64  `metric:"collapse/valid_thinking_rate" unit:"share" doc:"of turns with a closed thought that is not empty"`
	Starts     *float64  `metric:"collapse/first_turn_num_total" doc:"first turns"`
	FirstValid *float64  `metric:"collapse/first_turn_num_valid" doc:"those with such a thought"`
	FirstShare *float64  `metric:"collapse/first_turn_valid_rate" unit:"share" doc:"of first turns with such a thought"`
	FirstTurn  *Estimate `metric:"collapse_first_turn_sample"`
	Trajectory *Estimate `metric:"collapse_trajectory_sample" doc:"the same of turns that are drawn from all"`
}

// Estimate is what the matrix ℓ of a sample says: per token by "", and summed over thoughts by "_seq".
type Estimate struct {
	Bound       float64            `metric:"mi_upper_bound" unit:"nats" doc:"log N of N prompts"`
	Information map[string]float64 `metric:"mi{,_seq}_estimate" unit:"nats" doc:"mean (a − g), the mutual information between prompt and thought: towards 0 thoughts ignore their prompts"`
	Conditional map[string]float64 `metric:"conditional_entropy{,_seq}_est" unit:"nats" doc:"−mean a"`
	Reasoning   map[string]float64 `metric:"reasoning_entropy{,_seq}_est" unit:"nats" doc:"−mean g. Low information with high conditional entropy is template collapse; both low: entropy collapse"`
	Matched     float64            `metric:"matched_log_prob_mean" unit:"nats" doc:"mean a"`
	Marginal    float64            `metric:"marginal_log_prob_mean" unit:"nats" doc:"mean g"`
	Std         map[string]float64 `metric:"marginal_std{,_seq}" unit:"nats" doc:"population standard deviation of g"`
	Average     map[string]float64 `metric:"marginal_std_ema{,_seq}" unit:"nats" doc:"its moving average over steps"`
	Score       map[string]float64 `metric:"mi_zscore{,_seq}" doc:"the information over that deviation + std_eps"`
	ScoreEMA    map[string]float64 `metric:"mi_zscore_ema{,_seq}" doc:"the same over the moving average"`
	Accuracy    map[string]float64 `metric:"retrieval_accuracy{,@2,@4,@8}" unit:"share" doc:"of thoughts whose own prompt, or an equal one, is (among the K) likeliest"`
	Chance      map[string]float64 `metric:"retrieval_chance_level{,@2,@4,@8}" unit:"share" doc:"what guessing would find"`
	Above       map[string]float64 `metric:"retrieval_above_chance{,@2,@4,@8}" unit:"share" doc:"the difference"`
}

// estimate computes the numbers of a matrix of summed log-probs: per token, where each row is divided by its
// thought's length, and per sequence ("seq"). name keys the moving averages.
func (m *Meter) estimate(name string, sums [][]float64, rows []Turn, columns [][]int32, own []int,
	c config.Collapse) *Estimate {
	means := make([][]float64, len(sums))
	for i, row := range sums {
		means[i] = make([]float64, len(row))
		for j, s := range row {
			means[i][j] = s / float64(len(rows[i].Thought))
		}
	}
	out := &Estimate{Bound: math.Log(float64(len(columns)))}
	for _, field := range []*map[string]float64{&out.Information, &out.Conditional, &out.Reasoning, &out.Std,
		&out.Average, &out.Score, &out.ScoreEMA,
		&out.Accuracy, &out.Chance, &out.Above} {
		*field = map[string]float64{}
	}
	for _, kind := range []struct {
		matrix [][]float64
		suffix string
	}{{means, ""}, {sums, "_seq"}} {
		matched, marginal := make([]float64, len(rows)), make([]float64, len(rows))
		for i, row := range kind.matrix {
			matched[i] = row[own[i]]
			marginal[i] = logMeanExp(row)
		}
		a, g, of := statistics.Mean(matched), statistics.Mean(marginal), kind.suffix
		deviation := statistics.PopulationDeviation(marginal)
		average := m.average(name+"/marginal_std_ema"+of, deviation, c.EMADecay)
		out.Information[of], out.Conditional[of], out.Reasoning[of] = a-g, -a, -g
		out.Std[of], out.Score[of] = deviation, (a-g)/(deviation+c.StdEps)
		out.Average[of], out.ScoreEMA[of] = average, (a-g)/(average+c.StdEps)
		if of == "" {
			out.Matched, out.Marginal = a, g
		}
	}
	out.retrieval(means, columns, own)
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

// retrieval adds how often the prompt under which a thought is likeliest is its own, or equal to its own, and how often
// chance would find it.
func (e *Estimate) retrieval(matrix [][]float64, columns [][]int32, own []int) {
	for _, k := range []int{1, 2, 4, 8} {
		if k > len(columns) {
			break
		}
		hits, chance := 0.0, 0.0
		for i, row := range matrix {
			order := make([]int, len(row))
			for j := range order {
				order[j] = j
			}
			slices.SortStableFunc(order, func(a, b int) int {
				switch {
				case row[a] > row[b]:
					return -1
				case row[a] < row[b]:
					return 1
				}
				return 0
			})
			same := func(j int) bool { return slices.Equal(columns[j], columns[own[i]]) }
			if slices.ContainsFunc(order[:k], same) {
				hits++
			}
			equal := 0.0
			for j := range columns {
				if same(j) {
					equal++
				}
			}
			chance += min(1, float64(k)*equal/float64(len(columns)))
		}
		at := ""
		if k > 1 {
			at = fmt.Sprintf("@%d", k)
		}
		n := float64(len(matrix))
		e.Accuracy[at], e.Chance[at], e.Above[at] = hits/n, chance/n, (hits-chance)/n
	}
}

func logMeanExp(row []float64) float64 {
	most, sum := slices.Max(row), 0.0
	for _, v := range row {
		sum += math.Exp(v - most)
	}
	return most + math.Log(sum/float64(len(row)))
}
