package rollout

import (
	"math/big"
	"testing"
	"time"

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

// What ranks tell of a round adds up: counts and work as sums, time as that of the slowest; shares are of all episodes.
func TestStatsAddUp(t *testing.T) {
	first := Stats{Planned: 3, PromptTokens: 10, CachedTokens: 4,
		NewTokens: 7, Generation: 2 * time.Second,
		EnvWait: time.Second, Stops: map[string]int{episode.Turns: 3},
		Failures: []Failure{{Tag: "a"}}}
	second := Stats{Planned: 1, PromptTokens: 20, CachedTokens: 1,
		NewTokens: 1, Generation: time.Second,
		EnvWait: 4 * time.Second, Stops: map[string]int{episode.Length: 1}}
	for _, order := range [][]Stats{{first, second}, {second, first}, {first, {}, second}} {
		var all Stats
		for _, part := range order {
			all.merge(part)
		}
		if all.CachedTokens != 5 || all.Generation != 2*time.Second ||
			all.EnvWait != 4*time.Second || len(all.Failures) != 1 {
			t.Errorf("together %+v", all)
		}
		all.complete([]*episode.Episode{{Turns: make([]episode.Turn, 4)}, {Turns: make([]episode.Turn, 3)}, {}})
		if all.Episodes != 3 || all.LeftOut != 1 || all.Turns != 7 || all.PromptTokens != 30 || all.NewTokens != 8 ||
			all.StopShares[episode.Turns] != 0.75 || all.StopShares[episode.Length] != 0.25 ||
			len(all.StopShares) != len(episode.Stops) || len(all.Failed) != len(Causes) {
			t.Errorf("of all %+v", all)
		}
	}
}
