package evaluation

import (
	"math"
	"math/rand/v2"
	"testing"

	"gyre/internal/table"
	"gyre/orchestrate/loop/episode"
)

func played(tag string, seed int64, success ...float64) (out []*episode.Episode) {
	for _, s := range success {
		out = append(out, &episode.Episode{Tag: tag, Seed: seed, Score: 2 * s, Metrics: map[string]float64{"success": s}})
	}
	return out
}

// Tasks are compared, not episodes: members of a group count as one, and tasks that only one side played do not count.
func TestDifferences(t *testing.T) {
	a, b := Result{Name: "a"}, Result{Name: "b"}
	a.Episodes = append(append(played("x", 1, 0, 1), played("x", 2, 0, 0)...), played("x", 9, 1)...)
	b.Episodes = append(played("x", 1, 1, 1), played("x", 2, 0, 0)...)
	got := Differences([]Result{a, b})
	row := got.Rows[0]
	cell := row[3].(table.Cell)
	if len(got.Rows) != 2 || row[0] != "x/success" || cell.Value != 0.25 || row[4] != 2 || row[5] != 1 || row[6] != 0 ||
		row[7] != 1.0 {
		t.Errorf("rows %v", got.Rows)
	}
	if got.Rows[1][3].(table.Cell).Value != 0.5 {
		t.Errorf("score %v", got.Rows[1])
	}
	if len(Differences([]Result{a}).Rows) != 0 || len(Differences(nil).Rows) != 0 {
		t.Error("one result differs from nothing")
	}
}

func TestSignTest(t *testing.T) {
	for _, c := range []struct {
		better, worse int
		want          float64
	}{{0, 0, 1}, {1, 1, 1}, {5, 0, 2. / 32}, {1, 9, 22. / 1024}} {
		if got := signTest(c.better, c.worse); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%d and %d: %v, want %v", c.better, c.worse, got, c.want)
		}
	}
}

// Where tasks differ in how hard they are and members of a group share their task, the interval covers the true
// difference in 93 to 97 % of studies, as it says, and is at most half as wide as that of unpaired episodes.
func TestPairedIntervalsCover(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const studies, tasks, gain = 800, 100, 0.1
	covered, narrower := 0, 0.0
	for range studies {
		var a, b Result
		for seed := range int64(tasks) {
			easy := random.Float64()*0.9 < 0.45 // half of the tasks are nearly always solved
			chance := 0.02
			if easy {
				chance = 0.88
			}
			one, two := make([]float64, 4), make([]float64, 4)
			for i := range one {
				if random.Float64() < chance {
					one[i] = 1
				}
				if random.Float64() < chance+gain {
					two[i] = 1
				}
			}
			a.Episodes, b.Episodes = append(a.Episodes, played("x", seed, one...)...), append(b.Episodes,
				played("x", seed, two...)...)
		}
		cell := Differences([]Result{a, b}).Rows[0][3].(table.Cell)
		low, high := cell.Low.(float64), cell.High.(float64)
		if low <= gain && gain <= high {
			covered++
		}
		narrower += (high - low) / studies
	}
	if share := float64(covered) / studies; share < 0.93 || share > 0.97 {
		t.Errorf("the interval covers the difference in %.3f of studies", share)
	}
	// Of unpaired groups: the spread of 100 means of four around 0.45 and 0.55 of hard and easy tasks.
	if unpaired := 2 * 1.96 * math.Sqrt(2*0.2/tasks); narrower > unpaired/2 {
		t.Errorf("the interval is %.3f wide, unpaired groups give %.3f", narrower, unpaired)
	}
}
