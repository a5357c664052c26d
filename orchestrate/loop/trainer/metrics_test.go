package trainer

import (
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"testing"

	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/run/metrics"
)

func played(group int, tag, stop string, score float64, success bool, mask ...bool) *episode.Episode {
	return &episode.Episode{Group: group, Tag: tag, Stop: stop, Score: score, Success: success, Mask: mask, IDs: make([]int32, len(mask)),
		Rewards: []episode.Reward{{Token: len(mask) - 1, Value: 2 * score}}}
}

func TestFamiliarNames(t *testing.T) {
	episodes := []*episode.Episode{
		played(4, "a", "terminated", 1, true, false, true, true), played(4, "a", "length", 3, false, false, false, false, true),
		played(1, "b", "turns", 0.5, false, false, false, true),
	}
	m := map[string]float64{}
	coreValidation(episodes, m)
	line := metrics.Line{}
	line.Add(lengthsOf(episodes))
	maps.Copy(m, line.Floats())
	want := map[string]float64{
		"prompt_length/mean": 2, "prompt_length/min": 1, "prompt_length/max": 3, "response_length/clip_ratio": 1.0 / 3,
		"val-core/a/reward/mean@2": 4, "val-core/a/reward/best@2": 6, "val-core/a/reward/worst@2": 2,
		"val-core/a/acc/mean@2": 0.5, "val-core/a/acc/best@2": 1, "val-core/a/acc/worst@2": 0, "val-core/b/reward/mean@1": 1, "val-core/b/acc/mean@1": 0,
	}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("got %v\nwant %v", m, want)
	}
	table := rewardTable(episodes)
	if !reflect.DeepEqual(table.Columns, []string{"group_0", "group_1"}) || len(table.Rows) != 2 || table.Rows[0][0] != 0.5 || table.Rows[0][1] != 1.0 || table.Rows[1][1] != 3.0 ||
		!math.IsNaN(table.Rows[1][0].(float64)) {
		t.Errorf("reward table %v", table)
	}
}

// Totals go on where the metrics end that a run continues from.
func TestTotalsGoOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), metrics.File)
	l, err := metrics.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	var first totals
	for step, values := range []map[string]any{{"timing_s/testing": 1.0}, {"timing_s/step": 2.0}, {"timing_s/step": 4.0, "timing_s/testing": 8.0, "timing_s/checkpoint": 16.0}} {
		first.into(values)
		if err := l.Log(step, values); err != nil {
			t.Fatal(err)
		}
	}
	l.Close()
	second, err := readTotals(path)
	if err != nil || second != first {
		t.Errorf("read %+v, want %+v (%v)", second, first, err)
	}
	values := map[string]any{"timing_s/step": 32.0}
	second.into(values)
	if values["timing_s/train_total"] != 38.0 || values["timing_s/eval_total"] != 9.0 || values["timing_s/total"] != 63.0 {
		t.Errorf("totals %v", values)
	}
}
