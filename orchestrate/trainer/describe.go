package trainer

import (
	"math"

	"gyre/internal/statistics"
	"gyre/orchestrate/advantage"
)

// spread of a quantity over a batch.
type extent struct{ sum, n, min, max float64 }

func newExtent() extent { return extent{min: math.Inf(1), max: math.Inf(-1)} }

func (e *extent) add(v float64) {
	e.sum += v
	e.n++
	e.min, e.max = math.Min(e.min, v), math.Max(e.max, v)
}

func (e *extent) into(metrics map[string]float64, name string) {
	if e.n == 0 {
		return
	}
	metrics[name+"/mean"], metrics[name+"/min"], metrics[name+"/max"] = e.sum/e.n, e.min, e.max
}

// describe records verl's data metrics of a prepared batch: scores per episode, advantages, returns and values per sampled token, and
// how much of the returns' variance the critic explains.
func describe(samples []*Sample, trajectories []advantage.Trajectory, metrics map[string]float64, critic bool) {
	score, reward, adv, ret, value, length := newExtent(), newExtent(), newExtent(), newExtent(), newExtent(), newExtent()
	var residual, target statistics.Moments
	for i, s := range samples {
		score.add(s.Score)
		total := 0.0
		for _, r := range trajectories[i].Rewards {
			total += r
		}
		reward.add(total)
		length.add(float64(s.PolicyTokens()))
		for t, sampled := range s.Mask {
			if !sampled {
				continue
			}
			adv.add(float64(s.Advantages[t]))
			ret.add(float64(s.Returns[t]))
			if critic {
				value.add(float64(s.Values[t]))
				residual.Add(float64(s.Returns[t]) - float64(s.Values[t]))
				target.Add(float64(s.Returns[t]))
			}
		}
	}
	score.into(metrics, "critic/score")
	reward.into(metrics, "critic/rewards")
	adv.into(metrics, "critic/advantages")
	ret.into(metrics, "critic/returns")
	length.into(metrics, "response_length")
	if critic {
		value.into(metrics, "critic/values")
		metrics["critic/vf_explained_var"] = 1 - residual.Variance()/(target.Variance()+1e-5)
	}
}

// maskedMean of a column over all sampled tokens.
func maskedMean(samples []*Sample, column func(*Sample) []float32) float64 {
	sum, n := 0.0, 0.0
	for _, s := range samples {
		values := column(s)
		for t, sampled := range s.Mask {
			if sampled {
				sum += float64(values[t])
				n++
			}
		}
	}
	return sum / math.Max(n, 1)
}
