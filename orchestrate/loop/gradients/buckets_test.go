package gradients

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"gyre/internal/statistics"
)

func groupsOf(spreads ...float64) []Group {
	groups := make([]Group, len(spreads))
	for i, s := range spreads {
		groups[i] = Group{ID: i, Std: s, Rows: []int{2 * i, 2*i + 1}}
	}
	return groups
}

func TestQuantileSizes(t *testing.T) {
	for _, c := range []struct {
		groups, buckets int
		even, paper     []int
	}{
		{20, 6, []int{3, 3, 4, 3, 3, 4}, []int{3, 3, 3, 3, 3, 5}},
		{10, 6, []int{1, 2, 2, 1, 2, 2}, []int{1, 1, 1, 1, 1, 5}},
		{12, 6, []int{2, 2, 2, 2, 2, 2}, []int{2, 2, 2, 2, 2, 2}},
		{7, 1, []int{7}, []int{7}},
	} {
		spreads := make([]float64, c.groups)
		r := rand.New(rand.NewPCG(1, 2))
		for i := range spreads {
			spreads[i] = r.Float64()
		}
		for _, paper := range []bool{false, true} {
			want := c.even
			if paper {
				want = c.paper
			}
			buckets := Quantile(groupsOf(spreads...), c.buckets, paper)
			if len(buckets) != len(want) {
				t.Fatalf("%d groups make %d buckets", c.groups, len(buckets))
			}
			last, seen := math.Inf(-1), 0
			for i, b := range buckets {
				if len(b.Groups) != want[i] {
					t.Errorf("%d groups, paper %v: %s has %d groups, want %d", c.groups, paper, b.Name, len(b.Groups),
						want[i])
				}
				for _, g := range b.Groups {
					if g.Std < last {
						t.Errorf("%s: spread %v after %v", b.Name, g.Std, last)
					}
					last = g.Std
					seen++
				}
			}
			if seen != c.groups {
				t.Errorf("%d of %d groups are in a bucket", seen, c.groups)
			}
		}
	}
	for n := 1; n <= 9; n++ { // whatever the numbers, sizes differ by one at most
		for groups := n; groups <= 40; groups++ {
			for _, b := range Quantile(groupsOf(make([]float64, groups)...), n, false) {
				if size := len(b.Groups); size != groups/n && size != groups/n+1 {
					t.Fatalf("%d groups in %d buckets: one has %d", groups, n, size)
				}
			}
		}
	}
}

func TestQuantileWithFewGroupsAndTies(t *testing.T) {
	buckets := Quantile(groupsOf(1, 1, 1), 6, false)
	if len(buckets) != 3 {
		t.Fatalf("got %d buckets for three groups", len(buckets))
	}
	for i, b := range buckets {
		if b.Groups[0].ID != i {
			t.Errorf("ties must keep the order of ids: %s holds group %d", b.Name, b.Groups[0].ID)
		}
	}
	if len(Quantile(nil, 6, true)) != 0 {
		t.Error("no groups, no buckets")
	}
}

func TestFixedEdges(t *testing.T) {
	buckets := FixedRV(groupsOf(0, 0.999, 1.0, 4.999, 5.0, 1e300))
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

// -5.6, -4.6, -3.6 and their like spread by 1 exactly, though not in floating point.
func TestEdgesForgiveRounding(t *testing.T) {
	for edge := 1; edge <= 5; edge++ {
		for _, start := range []float64{-5.6, .1, .3, 7.7} {
			scores := []float64{start, start + float64(edge), start + 2*float64(edge)}
			below, at := float64(edge)*(1-1e-6), statistics.Deviation(scores)
			buckets := FixedRV([]Group{{ID: 0, Std: below}, {ID: 1, Std: at}})
			want := [2]string{"bucket_" + strconv.Itoa(edge), "bucket_" + strconv.Itoa(edge+1)}
			if len(buckets) != 2 || buckets[0].Name != want[0] || buckets[1].Name != want[1] {
				t.Errorf("spreads %.17g and %.17g are in %v, want %v", below, at, buckets, want)
			}
		}
	}
	if b := FixedRV(groupsOf(math.Nextafter(1, 0), math.Nextafter(5, 0))); b[0].Name != "bucket_2" ||
		b[1].Name != "bucket_6" {
		t.Errorf("just below the edges 1 and 5: %v", b)
	}
}

func TestBucketSpread(t *testing.T) {
	b := Bucket{Groups: []Group{{Std: 1, Rows: []int{5, 2}}, {Std: 4, Rows: []int{1}}}}
	if b.MeanStd() != 2.5 || !slices.Equal(b.Rows(), []int{1, 2, 5}) {
		t.Errorf("mean %v, rows %v", b.MeanStd(), b.Rows())
	}
}

func TestSplitRefusesUnrankable(t *testing.T) {
	if _, err := Split(groupsOf(1, math.NaN()), "quantile", 2, false); err == nil {
		t.Error("a NaN spread must be refused")
	}
}
