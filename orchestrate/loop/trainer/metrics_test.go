package trainer

import (
	"math"
	"reflect"
	"testing"

	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/run/metrics"
)

func played(group int, tag, stop string, score float64, success bool, mask ...bool) *episode.Episode {
	return &episode.Episode{Group: group, Tag: tag, Stop: stop, Score: score, Success: success, Mask: mask,
		IDs:     make([]int32, len(mask)),
		Rewards: []episode.Reward{{Token: len(mask) - 1, Value: 2 * score}}}
}

func TestFamiliarNames(t *testing.T) {
	episodes := []*episode.Episode{
		played(4, "a", "terminated", 1, true, false, true, true), played(4, "a", "length", 3, false, false, false,
			false, true),
		played(1, "b", "turns", 0.5, false, false, false, true),
	}
	episodes[0].Turns, episodes[0].Cut = make([]episode.Turn, 3), []int{2}
	episodes[2].Turns = make([]episode.Turn, 1)
	line := metrics.Line{}
	line.Add(newEpisodeMetrics(episodes))
	m := line.Floats()
	want := map[string]float64{
		"prompt_length/mean": 2, "prompt_length/min": 1, "prompt_length/max": 3, "response_length": 4.0 / 3,
		"response_length/clip_ratio": 1.0 / 3, "response_length/cut_ratio": 1.0 / 4,
	}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("got %v\nwant %v", m, want)
	}
	table := rewardTable(episodes)
	if !reflect.DeepEqual(table.Columns, []string{"group_0", "group_1"}) || len(table.Rows) != 2 ||
		table.Rows[0][0] != 0.5 || table.Rows[0][1] != 1.0 || table.Rows[1][1] != 3.0 ||
		!math.IsNaN(table.Rows[1][0].(float64)) {
		t.Errorf("reward table %v", table)
	}
}
