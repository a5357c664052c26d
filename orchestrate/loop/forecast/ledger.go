package forecast

import (
	"maps"
	"math"
	"slices"

	"gyre/internal/statistics"
)

// Ledger keeps the predictions since the last validation, and how right those before were. It travels in the
// checkpoint, so that a resumed run says what the uninterrupted one would have.
type Ledger struct {
	Steps     int     `json:"steps"`     // updates since the last validation
	Predicted int     `json:"predicted"` // of them, those of which a change was predicted
	Change    float64 `json:"change"`    // sum of these predictions
	Variance  float64 `json:"variance"`  // of that sum
	Freedom   float64 `json:"freedom"`   // the least of them
	// Before is the mean reward of each task of the last validation.
	Before map[string]float64 `json:"before,omitempty"`
	// predictions that were compared with a validation
	Verified int `json:"scored"`
	Right    int `json:"right"` // of them, those whose interval held what came
	// Squares sums the squares of how many standard errors each was off.
	Squares float64 `json:"squares"`
}

// Verification compares what was predicted since the last validation with what came.
type Verification struct {
	Predicted float64 `metric:"predicted" unit:"reward" doc:"change since the last validation, by the predictions of its updates (of those that were analysed, for all)"`
	Low       float64 `metric:"low" unit:"reward" doc:"lower end of the 90 % interval of what this validation measures: the error of the prediction and that of the two validations, wider where earlier predictions of the run were off by more"`
	High      float64 `metric:"high" unit:"reward" doc:"upper end"`
	Came      float64 `metric:"came" unit:"reward" doc:"the change that the validation measured, over the tasks of both"`
	Inside    bool    `metric:"inside" doc:"1: it lies in the interval"`
	Right     float64 `metric:"inside_share" unit:"share" doc:"of the run's predictions so far: 0.9 if they are calibrated"`
}

// Widening is what standard errors are multiplied by. They hold the noise of the groups and not what the first order
// leaves out: where the predictions of a run were off by more, by the root of their mean square, the next intervals are
// as much wider.
func (l *Ledger) Widening() float64 {
	return math.Sqrt(max(1, l.Squares/float64(max(l.Verified, 1))))
}

// Updated takes the prediction of an update; nil where none was made.
func (l *Ledger) Updated(p *Prediction) {
	if l.Steps++; p == nil {
		return
	}
	if l.Predicted++; l.Predicted == 1 || p.Freedom < l.Freedom {
		l.Freedom = p.Freedom
	}
	l.Change += p.Change
	l.Variance += p.Error * p.Error
}

// Validated takes the mean reward of each task of a validation. It verifies what was predicted since the one before;
// nil where nothing was, or fewer than three tasks are in both. An update without a prediction counts as the others did
// on average.
func (l *Ledger) Validated(tasks map[string]float64) *Verification {
	var found *Verification
	if came := l.changes(tasks); l.Predicted > 0 && len(came) > 2 {
		times := float64(l.Steps) / float64(l.Predicted)
		v := Verification{Predicted: times * l.Change, Came: statistics.Mean(came)}
		measured := statistics.Deviation(came) / math.Sqrt(float64(len(came)))
		deviation := math.Hypot(times*math.Sqrt(l.Variance), measured)
		half := l.Widening() * deviation * statistics.Student((1+Confidence)/2, min(l.Freedom, float64(len(came)-1)))
		v.Low, v.High = v.Predicted-half, v.Predicted+half
		l.Verified++
		if deviation > 0 {
			l.Squares += (v.Came - v.Predicted) * (v.Came - v.Predicted) / deviation / deviation
		}
		if v.Inside = v.Low <= v.Came && v.Came <= v.High; v.Inside {
			l.Right++
		}
		v.Right = float64(l.Right) / float64(l.Verified)
		found = &v
	}
	*l = Ledger{Before: tasks, Verified: l.Verified, Right: l.Right, Squares: l.Squares}
	return found
}

// changes are those of the tasks that both validations have.
func (l *Ledger) changes(tasks map[string]float64) []float64 {
	var out []float64
	for _, task := range slices.Sorted(maps.Keys(tasks)) { // a map has no order, and sums depend on it
		if before, both := l.Before[task]; both {
			out = append(out, tasks[task]-before)
		}
	}
	return out
}
