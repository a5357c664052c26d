package analysis

import (
	"math"
	"math/rand/v2"
	"testing"
)

func groupsOf(spreads ...float64) []Group {
	groups := make([]Group, len(spreads))
	for i, s := range spreads {
		groups[i] = Group{ID: i, Spread: s, Samples: []int{2 * i, 2*i + 1}}
	}
	return groups
}

func TestQuantileSizes(t *testing.T) {
	spreads := make([]float64, 20)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range spreads {
		spreads[i] = r.Float64()
	}
	buckets := Quantile(groupsOf(spreads...), 6)
	want := []int{3, 3, 3, 3, 3, 5}
	if len(buckets) != len(want) {
		t.Fatalf("got %d buckets", len(buckets))
	}
	last := math.Inf(-1)
	for i, b := range buckets {
		if len(b.Groups) != want[i] {
			t.Errorf("%s has %d groups, want %d", b.Name, len(b.Groups), want[i])
		}
		for _, g := range b.Groups {
			if g.Spread < last {
				t.Errorf("%s: spread %v after %v", b.Name, g.Spread, last)
			}
			last = g.Spread
		}
	}
}

func TestQuantileWithFewGroupsAndTies(t *testing.T) {
	buckets := Quantile(groupsOf(1, 1, 1), 6)
	if len(buckets) != 3 {
		t.Fatalf("got %d buckets for three groups", len(buckets))
	}
	for i, b := range buckets {
		if b.Groups[0].ID != i {
			t.Errorf("ties must keep the order of ids: %s holds group %d", b.Name, b.Groups[0].ID)
		}
	}
	if len(Quantile(nil, 6)) != 0 {
		t.Error("no groups, no buckets")
	}
}

func TestFixedEdges(t *testing.T) {
	buckets := FixedRV(groupsOf(0, 0.999, 1.0, 4.999, 5.0, 50))
	names := map[string]int{}
	for _, b := range buckets {
		names[b.Name] = len(b.Groups)
	}
	want := map[string]int{"bucket_1": 2, "bucket_2": 1, "bucket_5": 1, "bucket_6": 2}
	for name, n := range want {
		if names[name] != n {
			t.Errorf("%s: %d groups, want %d", name, names[name], n)
		}
	}
	if len(names) != len(want) {
		t.Errorf("empty buckets must be left out: %v", names)
	}
}

func TestSplitRefusesUnrankable(t *testing.T) {
	if _, err := Split(groupsOf(1, math.NaN()), "quantile", 2); err == nil {
		t.Error("a NaN spread must be refused")
	}
	if _, err := Split(groupsOf(1), "sorted", 2); err == nil {
		t.Error("an unknown mode must be refused")
	}
}
