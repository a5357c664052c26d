package sweep

import (
	"math"
	"slices"

	"gyre/internal/statistics"
	"gyre/internal/table"
)

// Scores are the results of one condition: a row per task (environment), a column per run (seed). Rows may have
// different lengths.
type Scores = [][]float64

// Estimate is a number with its 95 % interval; NaN where there is none.
type Estimate struct{ Value, Low, High float64 }

func (e Estimate) cell() table.Cell { return table.Cell{Value: e.Value, Low: e.Low, High: e.High} }

// confidence of all intervals of a study.
const confidence = 0.95

// bootstrap gives a statistic of conditions its interval over runs, within each task.
func bootstrap(statistic func(...Scores) float64, conditions ...Scores) Estimate {
	low, high := statistics.Bootstrap(confidence, statistic, conditions...)
	return Estimate{statistic(conditions...), low, high}
}

// InterquartileMean is the mean of the middle half of all scores, runs and tasks together (Agarwal et al. 2021): the
// lowest and the highest quarter are left out, each rounded down to whole scores.
func InterquartileMean(s Scores) float64 {
	all := slices.Concat(s...)
	if len(all) == 0 {
		return math.NaN()
	}
	slices.Sort(all)
	cut := len(all) / 4
	return statistics.Mean(all[cut : len(all)-cut])
}

// ProbabilityOfImprovement is the probability that a run of x scores higher than one of y on a task, averaged over
// the tasks that both have (Agarwal et al. 2021).
func ProbabilityOfImprovement(x, y Scores) float64 {
	var tasks []float64
	for i := range min(len(x), len(y)) {
		if share := statistics.Superiority(x[i], y[i]); !math.IsNaN(share) {
			tasks = append(tasks, share)
		}
	}
	return statistics.Mean(tasks)
}

// PairedDifference is the mean of x − y over pairs, with Student's interval: what the pairs have in common
// (environments, random draws) cancels. With fewer than two pairs there is no interval.
func PairedDifference(x, y []float64) Estimate {
	differences := make([]float64, len(x))
	for i := range x {
		differences[i] = x[i] - y[i]
	}
	mean, low, high := statistics.MeanInterval(differences, confidence)
	return Estimate{mean, low, high}
}
