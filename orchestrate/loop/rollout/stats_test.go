package rollout

import (
	"testing"
	"time"

	"gyre/orchestrate/loop/episode"
)

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
