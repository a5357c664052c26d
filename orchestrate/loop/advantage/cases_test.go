package advantage

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestGivenCases compares estimators with testdata/advantages.jsonl: multi-turn episodes rewarded at the end or at each
// turn, with advantages and returns that another program computed in float64 from the definitions.
func TestGivenCases(t *testing.T) {
	text, err := os.ReadFile(cmp.Or(os.Getenv("GYRE_GIVEN_CASES"), "testdata/advantages.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var c struct {
			ID, Estimator string
			NormByStd     *bool `json:"norm_by_std"`
			Gamma, Lambda float64
			Weights       map[string]float64
			Rows          []struct {
				Group           int
				Mask            []int
				Rewards, Values []float64
				Energies        []float64
				Parts           map[string]float64
			}
			Advantages, Returns [][]float64
		}
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		o := Options{Advantage: c.Estimator, Gamma: c.Gamma, Lambda: c.Lambda, NormByStd: c.NormByStd == nil || *c.NormByStd}
		names := slices.Sorted(maps.Keys(c.Weights))
		for _, name := range names {
			o.PartWeights = append(o.PartWeights, c.Weights[name])
		}
		var episodes []Trajectory
		for _, row := range c.Rows {
			e := Trajectory{Group: row.Group, Rewards: row.Rewards, Values: row.Values, Energies: row.Energies}
			for _, bit := range row.Mask {
				e.Mask = append(e.Mask, bit == 1)
			}
			for _, name := range names {
				e.Parts = append(e.Parts, row.Parts[name])
			}
			episodes = append(episodes, e)
		}
		got := Compute(episodes, o, 1)
		for what, pair := range map[string][2][][]float64{"advantage": {got.Advantages, c.Advantages},
			"return": {got.Returns, c.Returns}} {
			for i, row := range pair[1] {
				for at, want := range row {
					if v := pair[0][i][at]; episodes[i].Mask[at] && math.Abs(v-want) > 1e-5*max(1, math.Abs(want)) {
						t.Errorf("%s: %s of token %d of episode %d is %v, want %v", c.ID, what, at, i, v, want)
					}
				}
			}
		}
	}
}
