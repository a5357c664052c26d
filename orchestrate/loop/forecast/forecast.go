// Package forecast predicts what updates change of the mean reward of an episode, to first order, and keeps account of
// how right that was.
//
//	groups of episodes · update ──Predict──▶ Prediction ──Ledger.Updated──▶ Ledger ◀──Ledger.Validated── validations
//	                                                                          └──▶ Verification
//
// The policy gradient theorem (Sutton et al. 2000) gives the change of the expected reward J under a change Δθ of the
// weights as ⟨∇J, Δθ⟩ + O(‖Δθ‖²). Groups of episodes are independent draws of ∇J. Package gradients takes the inner
// products; this package has what follows from them, and needs no weights.
package forecast

import (
	"math"

	"gyre/internal/statistics"
)

// Confidence of all intervals.
const Confidence = 0.9

// Group is what the episodes of one start say of an update.
type Group struct {
	Effect  float64 // their estimate of ⟨∇J, Δθ⟩, in units of the reward
	Square  float64 // ‖g‖² of their part g of the task's gradient G
	Product float64 // ⟨g, G⟩
}

// Prediction is the expected change of the mean reward by one update, with its standard error.
type Prediction struct {
	Change, Error, Freedom float64
}

// Predict averages over the groups, and over as many more that have no gradient because all of their members earned
// the same. rounding is the standard error of the inner products themselves. It is nil for fewer than three groups.
//
// own says that the update was made from these very groups: then the noise in their gradient is in the update too, and
// their inner product is too large. Of ‖G‖², the inner product of G with itself, n/(n−1)·(‖G‖² − Σ‖g‖²) is not noise
// (see gradients.Separate), and the same share is taken of the effect. That is exact for a step along G; momentum and
// Adam's division by parameter make it an approximation. The standard error is then the jackknife's.
func Predict(groups []Group, more int, own bool, rounding float64) *Prediction {
	n, all := float64(len(groups)), float64(len(groups)+more)
	if n < 3 {
		return nil
	}
	effects := make([]float64, len(groups)+more)
	effect, squares, square := 0.0, 0.0, 0.0
	for i, g := range groups {
		effects[i] = g.Effect
		effect, squares, square = effect+g.Effect/all, squares+g.Square, square+g.Product
	}
	if !own {
		return &Prediction{effect, math.Hypot(statistics.Deviation(effects)/math.Sqrt(all), rounding), all - 1}
	}
	if square <= 0 {
		return nil
	}
	share := func(n, square, squares float64) float64 { return n / (n - 1) * (square - squares) / square }
	var without statistics.Moments // the prediction without one group
	for _, g := range groups {
		rest := square - 2*g.Product + g.Square
		without.Add((effect - g.Effect/all) * n / (n - 1) * share(n-1, rest, squares-g.Square))
	}
	deviation := math.Sqrt(without.Variance()) * (n - 1) / math.Sqrt(n)
	return &Prediction{effect * share(n, square, squares), math.Hypot(deviation, rounding), n - 1}
}

// Interval is where the change is expected with the package's confidence, if errors are so many times as large.
func (p Prediction) Interval(widening float64) (low, high float64) {
	half := widening * statistics.Student((1+Confidence)/2, p.Freedom) * p.Error
	return p.Change - half, p.Change + half
}
