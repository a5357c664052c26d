package trainer

import (
	"context"
	"math"
	"strings"
	"testing"

	"gyre/internal/statistics"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/gradients"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/source"
	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/run/metrics"
)

const fourGroups = `{"group": 4, "ids": [3, 4, 5, 6], "mask": [0, 0, 1, 1], "rewards": [[3, 1]]}
{"group": 4, "ids": [3, 4, 7], "mask": [0, 0, 1], "rewards": [[2, 0]]}
{"group": 9, "ids": [3, 5, 5, 8, 9, 9, 9], "mask": [0, 1, 0, 1, 1, 1, 1], "rewards": [[3, 0.5]]}
{"group": 9, "ids": [3, 5, 5, 9], "mask": [0, 1, 0, 1], "rewards": [[3, 0.5]]}
{"group": 11, "ids": [8, 5, 5, 8, 2, 9, 9], "mask": [0, 1, 0, 1, 1, 1, 1], "rewards": [[3, 3.5]]}
{"group": 11, "ids": [8, 5, 9], "mask": [0, 1, 1], "rewards": [[2, 0.5]]}
{"group": 11, "ids": [8, 7, 6, 9], "mask": [0, 1, 0, 1], "rewards": [[3, 1]]}
{"group": 12, "ids": [6, 7, 6, 9], "mask": [0, 1, 1, 1], "rewards": [[3, 1]]}
{"group": 12, "ids": [6, 2, 2, 9], "mask": [0, 1, 0, 1], "rewards": [[3, 0.25]]}
`

// What an update is predicted to change is, to first order, what it changes of Σ (r − r̄')·log π, however the
// advantages are scaled, and with groups that have nothing to say.
func TestPredictionIsTheFirstOrder(t *testing.T) {
	for _, how := range []string{"algorithm.norm_by_std=true", "algorithm.norm_by_std=false", "algorithm.advantage=rloo",
		"actor.loss_aggregation=token-sum", "filter.include_zero=true"} {
		run := given(t, fourGroups, "analysis.enabled=true", "analysis.num_buckets=2", "actor.lr=1e-6",
			"actor.mini_batch=16", "filter.strategy=top_p", "filter.value=1", "filter.include_zero=false", how)
		ctx := context.Background()
		s := &Step{Number: 1, Line: metrics.Line{}}
		s.Episodes = handwritten(t, strings.Split(strings.TrimSpace(fourGroups), "\n")...)
		for i, e := range s.Episodes {
			e.Logprob = nil
			e.Index = i
		}
		var err error
		if s.Chosen.Selection, err = run.preparation.choose(ctx, s.Episodes, false); err != nil {
			t.Fatal(err)
		}
		s.Provenance = source.Replayed
		if s.Chosen, err = run.preparation.prepare(ctx, s.Chosen.Selection, s.Provenance, 0, s.Line); err != nil {
			t.Fatal(err)
		}
		all, what := session.BatchOf(s.Episodes), train.What{Temperature: experiment.Temperature(run.Config)}
		before, err := run.Actor.Compute(ctx, all, what)
		if err != nil {
			t.Fatal(err)
		}
		s.analysed = newAnalysed(run.Config)
		s.analysed.pulls = true
		observer := &bucketObserver{Session: run.Session, preparation: &run.preparation}
		if err := observer.batch(ctx, &s.Chosen, false, s.analysed); err != nil {
			t.Fatal(err)
		}
		if err := (&beforeUpdate{&run.why}).Look(ctx, s); err != nil {
			t.Fatal(err)
		}
		if err := run.update.actor(ctx, s); err != nil {
			t.Fatal(err)
		}
		after, err := run.Actor.Compute(ctx, all, what)
		if err != nil {
			t.Fatal(err)
		}
		x := s.analysed
		moved, err := gradients.Moved(run.why.weights, run.Actor.Model)
		if err != nil {
			t.Fatal(err)
		}
		if err := run.why.weights.AddWeights(run.Actor.Model, -1); err != nil { // as it was
			t.Fatal(err)
		}
		var returns []float64
		for _, e := range x.chosen.Episodes {
			returns = append(returns, e.Return())
		}
		more := 4 - len(x.report.All().Bucket.Groups)
		got, fit := x.report.Predict(x.batch, returns, more, false, moved)
		want := firstOrder(s.Episodes, before, after)
		if got == nil || math.Abs(got.Change-want) > 0.03*math.Abs(want) || fit < 0.999 || want <= 0 {
			t.Errorf("%s: %+v (fit %g), the log-probs say %g", how, got, fit, want)
			continue
		}
		if err := run.why.Look(ctx, s); err != nil {
			t.Fatal(err)
		}
		line, _ := s.Line["why/line"].(string)
		if !strings.Contains(line, "of the gradient from bucket_") || !strings.Contains(line, "should move the return by") ||
			s.Line["why/equal_reward_share"] == 0.0 || run.State.Forecast.Predicted != 1 {
			t.Errorf("%s: %q, %v", how, line, run.State.Forecast)
		}
	}
}

// firstOrder is the mean over groups of Σ (r − r̄')·Δlog π per episode.
func firstOrder(episodes []*episode.Episode, before, after [][]float32) float64 {
	var groups []float64
	for _, g := range gradients.Groups(session.GroupIDs(episodes), nil) {
		sum, n := 0.0, float64(len(g.Rows))
		for _, row := range g.Rows {
			sum += episodes[row].Return()
		}
		own := 0.0
		for _, row := range g.Rows {
			r := episodes[row].Return()
			for t, sampled := range episodes[row].Mask {
				if sampled {
					own += (r - (sum-r)/(n-1)) * float64(after[row][t]-before[row][t]) / n
				}
			}
		}
		groups = append(groups, own)
	}
	return statistics.Mean(groups)
}
