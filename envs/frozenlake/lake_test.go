package frozenlake

import (
	"math"
	"testing"

	"gyre/envs"
)

// The expected numbers are those of RAGEN's maps over seeds 10000 to 11999 (4x4, p 0.9).
func TestMapCalibration(t *testing.T) {
	const n = 4000
	var holes, path float64
	holeCounts, pathCounts := map[int]float64{}, map[int]float64{}
	for seed := range int64(n) {
		l, err := generate(envs.Rand("frozenlake/map", 10_000+seed), 4, 0.9)
		if err != nil {
			t.Fatal(err)
		}
		h := 0
		for _, hole := range l.hole {
			if hole {
				h++
			}
		}
		way, ok := l.path(l.start)
		if !ok {
			t.Fatalf("seed %d: no path", seed)
		}
		holes += float64(h)
		path += float64(len(way))
		holeCounts[h] += 100.0 / n
		pathCounts[len(way)] += 100.0 / n
	}
	if mean := holes / n; math.Abs(mean-1.38) > 0.09 {
		t.Errorf("mean holes %.3f, want 1.38 ± 0.09", mean)
	}
	if mean := path / n; math.Abs(mean-2.74) > 0.11 {
		t.Errorf("mean shortest path %.3f, want 2.74 ± 0.11", mean)
	}
	for i, percent := range []float64{23, 35, 26, 12} {
		if math.Abs(holeCounts[i]-percent) > 3.5 {
			t.Errorf("%.1f %% of the maps have %d holes, want %g %%", holeCounts[i], i, percent)
		}
	}
	for i, percent := range []float64{20, 27, 25, 17} {
		if math.Abs(pathCounts[i+1]-percent) > 3.5 {
			t.Errorf("%.1f %% of the paths have %d moves, want %g %%", pathCounts[i+1], i+1, percent)
		}
	}
}

func TestRandomPolicyBaseline(t *testing.T) {
	for _, slippery := range []bool{false, true} {
		spec, err := envs.Lookup("frozen_lake")
		if err != nil {
			t.Fatal(err)
		}
		env, err := spec.Make(map[string]any{"slippery": slippery})
		if err != nil {
			t.Fatal(err)
		}
		const n = 6000
		successes, fallen := 0.0, 0.0
		for seed := range int64(n) {
			o, err := envs.PlayRandom(t.Context(), env, 10_000+seed, spec.MaxActions, envs.Rand("test", seed))
			if err != nil {
				t.Fatal(err)
			}
			if o.Success {
				successes++
			} else if o.Actions < spec.MaxActions || env.(*game).lake.hole[env.(*game).lake.Index(env.(*game).player)] {
				fallen++
			}
		}
		if rate := successes / n; math.Abs(rate-0.2455) > 0.025 {
			t.Errorf("slippery %v: random success rate %.3f, want 0.245 ± 0.025", slippery, rate)
		}
		if rate := fallen / n; math.Abs(rate-0.32) > 0.03 {
			t.Errorf("slippery %v: %.3f of the random walks end in a hole, want 0.32 ± 0.03", slippery, rate)
		}
	}
}
