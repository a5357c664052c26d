package rollout

import (
	"maps"
	"testing"
	"time"

	"gyre/orchestrate/loop/episode"
)

// What ranks tell of a round adds up: counts and work as sums, time as that of the slowest; shares are of all episodes.
func TestStatsAddUp(t *testing.T) {
	first := Stats{Episodes: 3, Turns: 5, TooLong: 1, Shortest: 9, PromptTokens: 10, CachedTokens: 4, NewTokens: 7, Generation: 2 * time.Second,
		EnvWait: time.Second, EnvBusy: 3 * time.Second, Stops: map[string]int{episode.Turns: 3}, Failures: []Failure{{Tag: "a"}}}
	second := Stats{Episodes: 1, Turns: 2, TooLong: 1, Shortest: 6, PromptTokens: 20, CachedTokens: 1, NewTokens: 1, Generation: time.Second,
		EnvWait: 4 * time.Second, EnvBusy: time.Second, Stops: map[string]int{episode.Length: 1}}
	for _, order := range [][]Stats{{first, second}, {second, first}, {first, {}, second}} {
		var all Stats
		for _, part := range order {
			all.merge(part)
		}
		if all.TooLong != 2 || all.Shortest != 6 || all.CachedTokens != 5 || all.Generation != 2*time.Second || all.EnvWait != 4*time.Second || all.EnvBusy != 4*time.Second ||
			len(all.Failures) != 1 {
			t.Errorf("together %+v", all)
		}
		m := all.Metrics()
		maps.DeleteFunc(m, func(_ string, v float64) bool { return v == 0 })
		want := map[string]float64{"rollout/episodes": 4, "rollout/turns": 7, "rollout/prompt_tokens": 30, "rollout/new_tokens": 8,
			"rollout/stop/" + episode.Turns: 0.75, "rollout/stop/" + episode.Length: 0.25}
		if !maps.Equal(m, want) {
			t.Errorf("metrics %v, want %v", m, want)
		}
	}
}
