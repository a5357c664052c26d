package sokoban

import (
	"math"
	"testing"

	"gyre/envs"
)

// The expected numbers are those of RAGEN's generator over 512 seeds (6x6, one box, search depth 300); tolerances are
// three standard errors or more.
func TestGeneratorCalibration(t *testing.T) {
	const n = 2000
	lengths := map[int]int{}
	displacements := map[int]int{}
	floorCells, total := 0, 0
	for seed := range int64(n) {
		b, displacement, err := generate(10_000+seed, 6, 6, 1, 300)
		if err != nil {
			t.Fatal(err)
		}
		displacements[displacement]++
		for _, c := range b.cells {
			if c != wall {
				floorCells++
			}
		}
		solution, ok := b.solve()
		if !ok {
			t.Fatalf("seed %d: no solution", 10_000+seed)
		}
		lengths[len(solution)]++
		total += len(solution)
	}
	if mean := float64(total) / n; math.Abs(mean-4.05) > 0.2 {
		t.Errorf("mean shortest solution %.2f, want 4.05 ± 0.2", mean)
	}
	if mean := float64(floorCells) / n; math.Abs(mean-10.55) > 0.35 {
		t.Errorf("mean floor cells %.2f, want 10.55 ± 0.35", mean)
	}
	// 912 reference levels: displacements 1, 2, 3 and 4 or more.
	reference := []float64{260, 370, 219, 63}
	observed := make([]float64, 4)
	for d, count := range displacements {
		observed[min(d, 4)-1] += float64(count)
	}
	if x := homogeneity(reference, observed); x > 16.3 { // 0.1 % point with 3 degrees of freedom
		t.Errorf("displacements %v against the reference %v: chi-square %.1f", observed, reference, x)
	}
	// 512 reference levels: shortest solutions of 1 to 9 and 10 or more moves.
	reference = []float64{48, 127, 55, 86, 75, 52, 28, 26, 7, 8}
	observed = make([]float64, 10)
	for l, count := range lengths {
		observed[min(l, 10)-1] += float64(count)
	}
	if x := homogeneity(reference, observed); x > 27.9 { // 0.1 % point with 9 degrees of freedom
		t.Errorf("solution lengths %v against the reference %v: chi-square %.1f", observed, reference, x)
	}
}

// homogeneity is the chi-square statistic of two samples coming from one distribution.
func homogeneity(a, b []float64) float64 {
	var sumA, sumB, x float64
	for i := range a {
		sumA, sumB = sumA+a[i], sumB+b[i]
	}
	for i := range a {
		d := a[i]*math.Sqrt(sumB/sumA) - b[i]*math.Sqrt(sumA/sumB)
		x += d * d / (a[i] + b[i])
	}
	return x
}

func TestRandomPolicyBaseline(t *testing.T) {
	spec, err := envs.Lookup("sokoban")
	if err != nil {
		t.Fatal(err)
	}
	env, err := spec.Make(nil)
	if err != nil {
		t.Fatal(err)
	}
	const n = 3000
	var successes, returns float64
	for seed := range int64(n) {
		o, err := envs.PlayRandom(t.Context(), env, 123+seed, spec.MaxActions, envs.Rand("test", seed))
		if err != nil {
			t.Fatal(err)
		}
		returns += o.Return
		if o.Success {
			successes++
		}
	}
	if rate := successes / n; math.Abs(rate-0.184) > 0.03 {
		t.Errorf("random success rate %.3f, want 0.184 ± 0.03", rate)
	}
	if mean := returns / n; math.Abs(mean-1.12) > 0.35 {
		t.Errorf("random mean return %.2f, want 1.12 ± 0.35", mean)
	}
}

func TestTwoBoxes(t *testing.T) {
	var displacement, floorCells float64
	const n = 200
	for seed := range int64(n) {
		b, d, err := generate(123+seed, 8, 8, 2, 10)
		if err != nil {
			t.Fatal(err)
		}
		if all, placed := b.boxes(); all != 2 || placed == 2 || d < 2 {
			t.Fatalf("seed %d: %d boxes, %d placed, displacement %d", seed, all, placed, d)
		}
		if _, ok := b.solve(); !ok {
			t.Fatalf("seed %d has no solution", seed)
		}
		displacement += float64(d)
		for _, c := range b.cells {
			if c != wall {
				floorCells++
			}
		}
	}
	if mean := displacement / n; math.Abs(mean-3.19) > 0.35 { // 33, 49, 33, 12, 1 levels of 2, 3, 4, 5, 6
		t.Errorf("mean total displacement %.2f, want 3.19 ± 0.35", mean)
	}
	if mean := floorCells / n; math.Abs(mean-18.4) > 1.2 {
		t.Errorf("mean floor cells %.2f, want 18.4 ± 1.2", mean)
	}
}

func TestSeedsDecideLevels(t *testing.T) {
	levels := map[string]bool{}
	for seed := range int64(100) {
		a, _, _ := generate(seed, 6, 6, 1, 300)
		b, _, _ := generate(seed, 6, 6, 1, 300)
		if a.key() != b.key() || a.render(plain) != b.render(plain) {
			t.Fatalf("seed %d gave two levels", seed)
		}
		levels[a.render(plain)] = true
	}
	if len(levels) < 95 {
		t.Errorf("100 seeds gave only %d levels", len(levels))
	}
}

func TestImpossibleSizeFails(t *testing.T) {
	if _, _, err := generate(1, 4, 4, 5, 300); err == nil {
		t.Error("a 4x4 board has no room for five boxes")
	}
}
