package rollout

import (
	"math"
	"reflect"
	"testing"

	"gyre/envs"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/run/metrics"
)

func scored(tag string, group int, scores ...float64) []*episode.Episode {
	var all []*episode.Episode
	for _, score := range scores {
		all = append(all, &episode.Episode{Tag: tag, Group: group, Score: score})
	}
	return all
}

func TestNormalize(t *testing.T) {
	batch := func() []*episode.Episode {
		return append(append(scored("a", 0, 0, 0, 0, 4), scored("a", 1, 2, 2, 2)...), scored("b", 2, 7)...)
	}
	// Group 0: mean 1, unbiased standard deviation 2. Tag a: mean 10/7. Everything: mean 17/8.
	tagStd := math.Sqrt((3*math.Pow(10./7, 2) + math.Pow(4-10./7, 2) + 3*math.Pow(2-10./7, 2)) / 6)
	eps := 1e-6
	for name, c := range map[string]struct {
		method, within string
		want           []float64
	}{
		"identity":      {"identity", "state", []float64{0, 0, 0, 4, 2, 2, 2, 7}},
		"mean by state": {"mean", "state", []float64{-1, -1, -1, 3, 0, 0, 0, 0}},
		"std by state": {"mean_std", "state", []float64{-1 / (2 + eps), -1 / (2 + eps), -1 / (2 + eps),
			3 / (2 + eps), 0, 0, 0, 0}},
		"std by tag": {"mean_std", "tag", []float64{-10. / 7 / (tagStd + eps), -10. / 7 / (tagStd + eps),
			-10. / 7 / (tagStd + eps), (4 - 10./7) / (tagStd + eps), (2 - 10./7) / (tagStd + eps),
			(2 - 10./7) / (tagStd + eps), (2 - 10./7) / (tagStd + eps), 0}},
		"mean over batch": {"mean", "batch", []float64{-17. / 8, -17. / 8, -17. / 8, 4 - 17./8, 2 - 17./8, 2 - 17./8,
			2 - 17./8, 7 - 17./8}},
	} {
		episodes := batch()
		normalize(episodes, c.method, c.within)
		for i, e := range episodes {
			if !near(e.Score, c.want[i]) {
				t.Errorf("%s: score %d is %v, want %v", name, i, e.Score, c.want[i])
			}
		}
	}
}

func TestAsymmetricClip(t *testing.T) {
	scores := make([]float64, 20)
	scores[19] = 100 // more than 3 deviations above the mean
	high := scored("a", 0, scores...)
	normalize(high, "asym_clip", "state")
	if high[19].Score != 3 {
		t.Errorf("high score is %v, want 3", high[19].Score)
	}
	low := scored("a", 0, 0, 1, 1, 1)
	normalize(low, "asym_clip", "state")
	if low[0].Score != -1 {
		t.Errorf("low score is %v, want -1", low[0].Score)
	}
}

func TestSingleEpisodesAreNotNormalized(t *testing.T) {
	episodes := append(scored("a", 0, 3), scored("a", 1, 5)...)
	normalize(episodes, "mean_std", "state")
	if episodes[0].Score != 3 || episodes[1].Score != 5 {
		t.Errorf("scores %v and %v, want 3 and 5: there is nothing to compare with", episodes[0].Score,
			episodes[1].Score)
	}
}

// Two episodes can be compared, and scores that differ by less than rounding are one score.
func TestNormalizationOfPairs(t *testing.T) {
	pair := scored("a", 0, 1, 3)
	normalize(pair, "mean", "state")
	if pair[0].Score != -1 || pair[1].Score != 1 {
		t.Errorf("scores %v and %v, want -1 and 1", pair[0].Score, pair[1].Score)
	}
	for _, method := range []string{"mean_std", "asym_clip"} {
		if got := normalized(method, 1e-7, smallestStd); got != 0 {
			t.Errorf("%s: a spread of %v is scaled to %v", method, smallestStd, got)
		}
		if got, want := normalized(method, 1e-6, 3e-6), 0.25; !near(got, want) {
			t.Errorf("%s: got %v, want %v", method, got, want)
		}
	}
}

// summarized are the averages by their names.
func summarized(episodes []*episode.Episode) map[string]float64 {
	line := metrics.Line{}
	line.Add(Summarize(episodes))
	return line.Floats()
}

func TestSummarize(t *testing.T) {
	make := func(tag string, group, tokens int, success bool, metrics map[string]float64) *episode.Episode {
		e := &episode.Episode{Tag: tag, Group: group, Success: success, Mask: []bool{false}, Metrics: metrics}
		for range tokens {
			e.Mask = append(e.Mask, true)
		}
		e.Metrics["success"] = envs.Indicator(success)
		return e
	}
	episodes := []*episode.Episode{
		make("a", 0, 3, true, map[string]float64{"episodic_return": 2, "action_is_valid": 0.5}),
		make("a", 0, 1, false, map[string]float64{"episodic_return": -1}),
		make("a", 1, 2, false, map[string]float64{"episodic_return": -1}),
		make("a", 1, 2, false, map[string]float64{"episodic_return": -1}),
		make("b", 2, 2, true, map[string]float64{"episodic_return": 4, "action_is_valid": 0}),
	}
	markPasses(episodes, []config.Env{{Groups: 2, GroupSize: 2}, {Groups: 1, GroupSize: 1}})
	want := map[string]float64{
		"a/success": 0.25, "a/non-zero/success": 1, "a/pass@1": 0.25, "a/non-zero/pass@1": 0.5, "a/pass@2": 0.5,
		"a/non-zero/pass@2": 1, "a/action_is_valid": 0.125,
		"a/non-zero/action_is_valid": 0.5, "a/episodic_return": -0.25, "a/non-zero/episodic_return": -0.25,
		"b/action_is_valid": 0, "b/success": 1, "b/non-zero/success": 1, "b/pass@1": 1, "b/non-zero/pass@1": 1,
		"b/episodic_return":          4,
		"b/non-zero/episodic_return": 4, "response_length": 2, "charts/avg_episode_return": 1.875,
	}
	if got := summarized(episodes); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
