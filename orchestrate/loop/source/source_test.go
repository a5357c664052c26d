package source

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
)

// The log-probs that episodes carry are the old ones of an update only where they are those of the weights that it
// begins with, or where nothing asks for these.
func TestServes(t *testing.T) {
	for _, c := range []struct {
		from             Provenance
		plain, corrected bool
	}{
		{Provenance{Weights: Present, Exact: true}, true, true},
		{Provenance{Weights: Present}, false, false},
		{Provenance{Weights: Older, Exact: true}, true, false},
		{Provenance{Weights: Older}, false, false},
		{Replayed, true, false},
		{Provenance{Weights: Unknown}, false, false},
	} {
		if got := c.from.Serves(false); got != c.plain {
			t.Errorf("%+v serves an update that corrects nothing: %v, want %v", c.from, got, c.plain)
		}
		if got := c.from.Serves(true); got != c.corrected {
			t.Errorf("%+v serves an update that corrects: %v, want %v", c.from, got, c.corrected)
		}
	}
}

// drawn is an episode whose tokens 1, 2 and 4 were sampled at step 5 or later: the first by the weights after 2 steps,
// the others by those after 4, of which the last saw keys and values of older ones.
func drawn(t *testing.T) *episode.Episode {
	t.Helper()
	e, err := episode.Decode([]byte(`{"group": 0, "ids": [3, 4, 5, 6, 7], "mask": [0, 1, 1, 0, 1], "rewards": [],
		"logprobs": [null, -1, -2, null, -3], "versions": [[1, 2], [2, 4]], "mixed": [[4, 5]]}`), 0)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestStaleness(t *testing.T) {
	list := []*episode.Episode{drawn(t)}
	if got, want := Ages(list, 5), [][]int{{-1, 2, 0, -1, 0}}; !reflect.DeepEqual(got, want) {
		t.Errorf("ages %v, want %v", got, want)
	}
	for _, weights := range []Weights{Present, Unknown} {
		if m := (Provenance{Weights: weights}).Staleness(list, 5); m != nil {
			t.Errorf("weights %d: %+v, want none", weights, m)
		}
	}
	m := Provenance{Weights: Older}.Staleness(list, 5)
	third := 1.0 / 3
	want := &StalenessMetrics{Mean: 2 * third, Max: 2, Shares: map[string]float64{"0": 2 * third, "2": third}, Mixed: third}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("%+v, want %+v", m, want)
	}
}

func TestMixed(t *testing.T) {
	list, scored := []*episode.Episode{drawn(t)}, [][]float32{{0, -1, -2, 0, -3.5}}
	if m := Mixed(list, scored, 5); m == nil || math.Abs(m.Mean-0.5) > 1e-6 || math.Abs(m.Max-0.5) > 1e-6 {
		t.Errorf("%+v, want a distance of 0.5", m)
	}
	if m := Mixed(list, scored, 6); m != nil {
		t.Errorf("%+v, want none: the newest weights drew nothing", m)
	}
}

// A file of one step serves every step; one of several is used in their order, and must have enough.
func TestReplayed(t *testing.T) {
	file := func(steps ...string) string {
		path, text := filepath.Join(t.TempDir(), "episodes.jsonl"), ""
		for _, step := range steps {
			text += `{"step": ` + step + `, "group": 0, "ids": [3, 4], "mask": [0, 1], "rewards": [[1, ` + step + `]]}` + "\n"
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		steps []string
		want  []float64 // rewards of the training steps 1 and 2
	}{
		{steps: []string{"7"}, want: []float64{7, 7}},
		{steps: []string{"9", "7"}, want: []float64{7, 9}},
		{steps: []string{"9", "7", "8"}, want: []float64{7, 8}},
	} {
		r, err := openReplay(file(c.steps...), 2)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range c.want {
			b, err := r.Next(t.Context(), i+1, nil)
			if err != nil || len(b.Episodes) != 1 || b.Episodes[0].Return() != want || b.Provenance != Replayed {
				t.Errorf("steps %v, step %d: %+v, %v; want one episode that earned %v", c.steps, i+1, b, err, want)
			}
		}
	}
	if _, err := openReplay(file("3", "4"), 3); err == nil || !strings.Contains(err.Error(), "set run.steps=2") {
		t.Errorf("two steps for a run of three: %v", err)
	}
}

// Sizes that were decided for other groups than the configuration's are not those of a batch.
func TestSizesOfOtherGroups(t *testing.T) {
	c := &config.Config{Envs: []config.Env{{Groups: 2, GroupSize: 4}}}
	decided := sizes{1: {3, 5}, 2: {3, 5, 4}, 3: {3, 6}}
	for batch, want := range map[int][]int{1: {3, 5}, 2: nil, 3: nil, 4: nil} {
		if got := decided.plan(c, 0, batch).Sizes; !reflect.DeepEqual(got, want) {
			t.Errorf("batch %d: sizes %v, want %v", batch, got, want)
		}
	}
}
