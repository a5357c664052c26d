package forecast

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A prediction from the very groups that made the update is as right as one from others: the noise that both share is
// taken off, and intervals hold the truth about as often as they say.
func TestPredictionsFromTheUpdateItself(t *testing.T) {
	const rounds, groups, dimensions = 1000, 40, 200
	rng := rand.New(rand.NewPCG(1, 2))
	expected, mean, raw, inside := 0.0, 0.0, 0.0, 0
	for range rounds {
		list, total := make([][]float64, groups), make([]float64, dimensions)
		for i := range list {
			list[i] = make([]float64, dimensions)
			for d := range list[i] {
				list[i][d] = rng.NormFloat64()
				if d < 4 {
					list[i][d] += 1
				}
				total[d] += list[i][d] // the update goes along the sum
			}
		}
		out := make([]Group, groups)
		for i, g := range list {
			for d, v := range g {
				out[i].Square += v * v
				out[i].Product += v * total[d]
			}
			out[i].Effect = out[i].Product
			raw += out[i].Effect / groups / rounds
		}
		truth := total[0] + total[1] + total[2] + total[3] // the mean gradient is 1 in four dimensions
		expected += truth / rounds
		p := Predict(out, 0, true, 0)
		mean += p.Change / rounds
		if low, high := p.Interval(1); low <= truth && truth <= high {
			inside++
		}
	}
	if mean < 0.98*expected || mean > 1.02*expected || raw < 1.5*expected {
		t.Errorf("predicted %.1f on average, %.1f with the shared noise, the truth is %.1f", mean, raw, expected)
	}
	if share := float64(inside) / rounds; share < 0.87 || share > 0.96 {
		t.Errorf("90 %% intervals hold the truth in %.3f of all cases", share)
	}
	if Predict(make([]Group, 2), 5, false, 0) != nil {
		t.Error("two groups predict")
	}
}

// A ledger compares what was predicted between two validations with what came, and begins anew.
func TestLedgerScoresPredictions(t *testing.T) {
	var l Ledger
	tasks := func(values ...float64) map[string]float64 {
		out := map[string]float64{}
		for i, v := range values {
			out[string(rune('a'+i))] = v
		}
		return out
	}
	if s := l.Validated(tasks(0, 1, 2, 3)); s != nil {
		t.Errorf("nothing was predicted: %+v", s)
	}
	l.Updated(&Prediction{Change: 0.25, Error: 0.01, Freedom: 30})
	l.Updated(nil)
	s := l.Validated(tasks(0.5, 1.5, 2.5, 3.5))
	if s == nil || s.Predicted != 0.5 || s.Came != 0.5 || !s.Inside || s.Right != 1 || s.High-0.5 < 0.02 || s.High > 0.6 {
		t.Errorf("%+v", s)
	}
	l.Updated(&Prediction{Change: 0.5, Error: 0.01, Freedom: 30})
	if s = l.Validated(tasks(0.5, 1.5, 2.5, 3.5)); s.Inside || s.Right != 0.5 || l.Steps != 0 {
		t.Errorf("%+v, %+v", s, l)
	}
	// it was off by 50 standard errors, the one before by none: the next interval is as much wider
	l.Updated(&Prediction{Change: 0.5, Error: 0.01, Freedom: 30})
	again := l.Validated(tasks(0.5, 1.5, 2.5, 3.5))
	if wider := (again.High - 0.5) / (s.High - 0.5); !again.Inside || math.Abs(wider-50/math.Sqrt(2)) > 0.01 {
		t.Errorf("%+v after %+v", again, s)
	}
}
