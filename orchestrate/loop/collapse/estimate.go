package collapse

import (
	"fmt"
	"math"
	"slices"

	"gyre/internal/statistics"
	"gyre/orchestrate/config"
)

// estimate computes the numbers of a matrix of summed log-probs: per token, where each row is divided by its thought's length,
// and per sequence ("seq").
func (m *Meter) estimate(prefix string, sums [][]float64, rows []Turn, columns [][]int32, own []int, c config.Collapse) map[string]float64 {
	means := make([][]float64, len(sums))
	for i, row := range sums {
		means[i] = make([]float64, len(row))
		for j, s := range row {
			means[i][j] = s / float64(len(rows[i].Thought))
		}
	}
	out := map[string]float64{prefix + "mi_upper_bound": math.Log(float64(len(columns)))}
	for _, kind := range []struct {
		matrix [][]float64
		suffix string
	}{{means, ""}, {sums, "_seq"}} {
		matched, marginal := make([]float64, len(rows)), make([]float64, len(rows))
		for i, row := range kind.matrix {
			matched[i] = row[own[i]]
			marginal[i] = logMeanExp(row)
		}
		a, g := statistics.Mean(matched), statistics.Mean(marginal)
		deviation := statistics.PopulationDeviation(marginal)
		out[prefix+"mi"+kind.suffix+"_estimate"] = a - g
		out[prefix+"conditional_entropy"+kind.suffix+"_est"] = -a
		out[prefix+"reasoning_entropy"+kind.suffix+"_est"] = -g
		out[prefix+"marginal_std"+kind.suffix] = deviation
		out[prefix+"mi_zscore"+kind.suffix] = (a - g) / (deviation + c.StdEps)
		if m.Deviations == nil {
			m.Deviations = map[string]float64{}
		}
		name := prefix + "marginal_std_ema" + kind.suffix
		average, known := m.Deviations[name]
		if average = c.EMADecay*average + (1-c.EMADecay)*deviation; !known {
			average = deviation
		}
		m.Deviations[name] = average
		out[name] = average
		out[prefix+"mi_zscore_ema"+kind.suffix] = (a - g) / (average + c.StdEps)
		if kind.suffix == "" {
			out[prefix+"matched_log_prob_mean"], out[prefix+"marginal_log_prob_mean"] = a, g
		}
	}
	retrieval(out, prefix, means, columns, own)
	return out
}

// retrieval adds how often the prompt under which a thought is likeliest is its own, or equal to its own, and how often
// chance would find it.
func retrieval(out map[string]float64, prefix string, matrix [][]float64, columns [][]int32, own []int) {
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
		out[prefix+"retrieval_accuracy"+at] = hits / n
		out[prefix+"retrieval_chance_level"+at] = chance / n
		out[prefix+"retrieval_above_chance"+at] = (hits - chance) / n
	}
}

func logMeanExp(row []float64) float64 {
	most, sum := slices.Max(row), 0.0
	for _, v := range row {
		sum += math.Exp(v - most)
	}
	return most + math.Log(sum/float64(len(row)))
}
