package rollout

import (
	"math/big"
	"testing"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
)

// pass@k against its definition in whole numbers.
func TestPassAt(t *testing.T) {
	for n := 1; n <= 12; n++ {
		for c := 0; c <= n; c++ {
			for k := 1; k <= n; k++ {
				var none, all big.Int
				none.Binomial(int64(n-c), int64(k))
				all.Binomial(int64(n), int64(k))
				share, _ := new(big.Rat).SetFrac(&none, &all).Float64()
				if got := PassAt(k, n, c); !near(got, 1-share) {
					t.Errorf("pass@%d of %d with %d successes is %v, want %v", k, n, c, got, 1-share)
				}
			}
		}
	}
}

func TestGroupsGetPassAtPowersOfTwo(t *testing.T) {
	var episodes []*episode.Episode
	for i := range 9 { // a group of six with two successes, one of three without
		episodes = append(episodes, &episode.Episode{Tag: "t", Group: i / 6, Success: i < 2,
			Metrics: map[string]float64{}})
	}
	markPasses(episodes, []config.Env{{Groups: 1, GroupSize: 6}, {Groups: 1, GroupSize: 3}})
	m := episodes[5].Metrics
	if len(m) != 4 || !near(m["pass@1"], 2.0/6) || !near(m["pass@2"], 1-4.0/6*3/5) ||
		!near(m["pass@4"], 1-4.0/6*3/5*2/4*1/3) || m["pass@6"] != 1 {
		t.Errorf("group of six: %v", m)
	}
	if m := episodes[6].Metrics; len(m) != 3 || m["pass@1"]+m["pass@2"]+m["pass@3"] != 0 {
		t.Errorf("group of three: %v", m)
	}
}
