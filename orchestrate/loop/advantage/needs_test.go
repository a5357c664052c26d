package advantage

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gyre/orchestrate/config"
)

// scaled are an estimator's advantages before they are whitened, which every episode of a batch takes part in.
func scaled(e Estimator, batch []Trajectory, o Options) [][]float64 {
	advantages, _ := e.Linear(batch, o)
	if e.Divisor != nil {
		divisor := e.Divisor(batch, o)
		for i := range advantages {
			for t := range advantages[i] {
				advantages[i][t] /= divisor(i)
			}
		}
	}
	return advantages
}

// The names that algorithm.advantage takes are the estimators that there are, and what a configuration says that one
// needs is what its formula reads.
func TestNeedsOfTheEstimators(t *testing.T) {
	field, _ := reflect.TypeFor[config.Algorithm]().FieldByName("Advantage")
	names := strings.Split(field.Tag.Get("oneof"), ",")
	if !slices.EqualFunc(names, Estimators, func(name string, e Estimator) bool { return name == e.Name }) {
		t.Errorf("config.Algorithm.Advantage takes %s, expected the names in Estimators in their order", names)
	}
	made := func(change func(batch []Trajectory)) []Trajectory {
		r, mask := rand.New(rand.NewPCG(3, 5)), bits("0110011100110")
		var batch []Trajectory
		for i := range 6 {
			e := Trajectory{Group: i / 3, Mask: mask, TurnEnds: []int{2, 7, 11}, States: []int{1, 2, 1}}
			for range mask {
				e.Rewards, e.Values = append(e.Rewards, r.NormFloat64()), append(e.Values, r.NormFloat64())
				e.Energies = append(e.Energies, 2*r.Float64())
			}
			batch = append(batch, e)
		}
		change(batch)
		return batch
	}
	for _, e := range Estimators {
		needs := config.Algorithm{Advantage: e.Name}
		o := Options{Advantage: e.Name, Gamma: .9, Lambda: .8, HighLevelGamma: .7, NormByStd: true, StepWeight: 1}
		first := func(change func(batch []Trajectory)) []float64 { return scaled(e, made(change), o)[0] }
		plain := first(func([]Trajectory) {})
		reads := func(change func(batch []Trajectory)) bool { return !slices.Equal(first(change), plain) }
		groups := reads(func(batch []Trajectory) { batch[1].Rewards[11]++ }) &&
			!reads(func(batch []Trajectory) { batch[3].Rewards[11]++ })
		undivided := o
		undivided.NormByStd = false
		for what, is := range map[string][2]bool{
			"states":     {reads(func(batch []Trajectory) { batch[0].States[1] = 1 }), needs.UsesStates()},
			"deviations": {!slices.Equal(scaled(e, made(func([]Trajectory) {}), undivided)[0], plain), needs.Divides()},
		} {
			if is[0] != is[1] {
				t.Errorf("%s: %s: %v of the formula, %v of the configuration", e.Name, what, is[0], is[1])
			}
		}
		energies := reads(func(batch []Trajectory) {
			batch[0].Energies[6]++
			batch[1].Energies[6]++
		})
		alike := !slices.ContainsFunc([]int{2, 5, 6, 7, 10, 11}, func(at int) bool { return plain[at] != plain[1] })
		for what, is := range map[string][2]bool{
			// a group of any size has the same expectation: see Claim
			"a size of its own":       {e.Name != "reinforce" && e.Claim.Whole == Unbiased, needs.Unsized()},
			"values of a critic":      {reads(func(batch []Trajectory) { batch[0].Values[6]++ }), needs.UsesCritic()},
			"energies":                {energies, needs.UsesEnergies()},
			"groups":                  {groups, needs.UsesGroups()},
			"one value to an episode": {alike, needs.ComparesEpisodes()},
		} {
			if is[0] != is[1] {
				t.Errorf("%s: %s: %v of the formula, %v of the configuration", e.Name, what, is[0], is[1])
			}
		}
	}
}
