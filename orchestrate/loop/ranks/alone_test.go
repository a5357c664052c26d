package ranks

import (
	"errors"
	"math"
	"testing"
)

// What a process alone has comes back from every collective as it is: not a copy, and not encoded, which a function
// would not survive.
func TestCollectivesOfAProcessAlone(t *testing.T) {
	ctx, w := t.Context(), Alone()
	if w.Rank() != 0 || w.Size() != 1 || w.Processes() != 1 || !w.Writes() || !w.OneMachine() || w.Group() != nil {
		t.Errorf("rank %d of %d, %d processes, group %v", w.Rank(), w.Size(), w.Processes(), w.Group())
	}
	batch := []float32{1, 2}
	if all, err := Gather(ctx, w, batch); err != nil || len(all) != 1 || &all[0][0] != &batch[0] {
		t.Errorf("gathered %v, %v", all, err)
	}
	if got, err := Broadcast(ctx, w, func() int { return 7 }); err != nil || got() != 7 {
		t.Errorf("broadcast gave another function, %v", err)
	}
	for _, yes := range []bool{false, true} {
		if got, err := w.Any(ctx, yes); err != nil || got != yes {
			t.Errorf("any of %v is %v, %v", yes, got, err)
		}
	}
	for _, mine := range []float64{-3.5, 0, math.Inf(1), math.NaN()} {
		if got, err := w.Max(ctx, mine); err != nil || math.Float64bits(got) != math.Float64bits(mine) {
			t.Errorf("the maximum of %v is %v, %v", mine, got, err)
		}
	}
	if sent, waited := w.Traffic(); sent != 0 || waited != 0 {
		t.Errorf("sent %v bytes, waited %v", sent, waited)
	}
	for _, err := range []error{nil, errors.New("the disk is full")} {
		if agreed, cause := w.Agree(ctx, err), w.Cause(err); agreed != err || cause != err {
			t.Errorf("of %v all agree on %v, its cause is %v", err, agreed, cause)
		}
	}
}
