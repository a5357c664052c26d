package aggregation

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gyre/orchestrate/config"
)

// The names that actor.loss_aggregation takes are the ways that there are.
func TestNames(t *testing.T) {
	field, _ := reflect.TypeFor[config.Actor]().FieldByName("LossAggregation")
	names := slices.Sorted(slices.Values(strings.Split(field.Tag.Get("oneof"), ",")))
	if known := slices.Sorted(maps.Keys(ways)); !slices.Equal(names, known) {
		t.Errorf("actor.loss_aggregation takes %v, expected %v", names, known)
	}
}

func TestWeights(t *testing.T) {
	for name, want := range map[string][]float64{"token-mean": {.25, .25, .25}, "token-sum": {1, 1, 1},
		"seq-mean-token-sum": {.5, .5, .5}, "seq-mean-token-mean": {.5, 0, .5 / 3},
		"seq-mean-token-sum-norm": {.1, .1, .1}} {
		got := Weights(name, []int{1, 0, 3}, 10, nil)
		if got[1] = want[1]; !slices.Equal(got, want) { // a sequence without tokens has nothing to weigh
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// Sequences count as they are told to, in the sum and in what it is divided by.
func TestCounts(t *testing.T) {
	lengths, counts := []int{1, 2, 0, 4}, []float64{2, 0.5, 7, 0.5}
	for name, want := range map[string][]float64{"token-sum": {2, .5, .5}, "seq-mean-token-sum": {2. / 3, .5 / 3, .5 / 3},
		"seq-mean-token-mean": {2. / 3, .25 / 3, .125 / 3}} {
		got := Weights(name, lengths, 10, counts)
		if got = slices.Delete(got, 2, 3); !slices.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-15 }) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
