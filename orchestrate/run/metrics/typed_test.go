package metrics

import (
	"maps"
	"testing"
)

type extent struct {
	Mean float64 `metric:"mean"`
	Max  float64 `metric:"max"`
}

type bucket struct {
	Norm  float64 `metric:"norm" doc:"its length"`
	Count int     `metric:"sample_count" doc:"episodes"`
}

type phase struct {
	Loss    float64           `metric:"actor/loss" unit:"nats" doc:"of | the policy"`
	Gap     float64           `metric:"rollout/gap,omitzero" doc:"a gap"`
	KL      *float64          `metric:"actor/kl" doc:"a divergence"`
	Length  *extent           `metric:"length" unit:"tokens" doc:"of a reply"`
	Buckets map[string]bucket `metric:"share/{bucket}"`
	Note    string            `metric:"note,omitzero" doc:"a text"`
	Empty   bool              `metric:"empty" doc:"whether"`
	Rewards Table             `metric:"rewards" doc:"a table"`
	private int
}

func TestStructsBecomeLines(t *testing.T) {
	half := 0.5
	line := Line{}
	line.Add(phase{Loss: 2, KL: &half, Buckets: map[string]bucket{"bucket_1": {3, 4}}, Empty: true, private: 1},
		struct{ phase }{phase{Note: "x", Length: &extent{1, 2}}})
	want := Line{"actor/loss": 0.0, "actor/kl": 0.5, "share/bucket_1/norm": 3.0, "share/bucket_1/sample_count": 4.0,
		"note": "x", "empty": 0.0,
		"length/mean": 1.0, "length/max": 2.0}
	if !maps.Equal(line, want) {
		t.Errorf("got  %v\nwant %v", line, want)
	}
}
